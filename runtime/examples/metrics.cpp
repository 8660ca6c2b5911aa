// SPDX-License-Identifier: Apache-2.0
#include "runtime/examples/metrics.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <time.h>

namespace jigsaw::examples {

namespace {

/// JSON knows no NaN.
std::string number(double value)
{
    if (!std::isfinite(value))
        return "null";
    char text[32];
    std::snprintf(text, sizeof text, "%.7g", value);
    return text;
}

class Object {
  public:
    Object &raw(const char *key, const std::string &json)
    {
        text_ += (text_.empty() ? "\"" : ",\"") + std::string(key) + "\":" + json;
        return *this;
    }
    Object &with(const char *key, double value) { return raw(key, number(value)); }
    Object &with(const char *key, std::uint64_t value) { return raw(key, std::to_string(value)); }
    Object &with(const char *key, const std::string &word) { return raw(key, "\"" + word + "\""); }
    std::string json() const { return "{" + text_ + "}"; }

  private:
    std::string text_;
};

double milliseconds(std::uint64_t from_ns, std::uint64_t to_ns)
{
    return static_cast<double>(to_ns - from_ns) / 1e6;
}

} // namespace

std::uint64_t now_ns()
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
}

Metrics::Metrics(const std::string &path)
{
    if (path.empty())
        return;
    file_.reset(std::fopen(path.c_str(), "we"));
    if (!file_)
        throw std::runtime_error("--metrics " + path + ": " + std::strerror(errno));
}

void Metrics::write(const std::string &json)
{
    if (!file_)
        return;
    std::fprintf(file_.get(), "%s\n", json.c_str());
    std::fflush(file_.get());
}

void Metrics::add(const IterationLine &line)
{
    write(Object()
              .with("iteration", line.iteration)
              .with("t_ns", now_ns())
              .with("depth", std::uint64_t{line.depth})
              .with("num_blocks", std::uint64_t{line.num_blocks})
              .with("generation", line.generation)
              .with("loss", line.loss)
              .with("lr", line.lr)
              .with("turn_begin_ns", line.turn_begin_ns)
              .with("turn_end_ns", line.turn_end_ns)
              .with("forward_ms", line.forward_ms)
              .with("backward_ms", line.backward_ms)
              .with("sync_ms", line.sync_ms)
              .with("turn_ms", milliseconds(line.turn_begin_ns, line.turn_end_ns))
              .with("turn_wait_ms", line.turn_wait_ms)
              .json());
}

void Metrics::add(const EndLine &line)
{
    write(Object()
              .with("event", std::string("end"))
              .with("t_ns", now_ns())
              .with("iterations", line.iterations)
              .raw("stopped", line.stopped ? "true" : "false")
              .with(line.quality_name, line.quality)
              .with("mean_depth_fraction", line.mean_depth_fraction)
              .with("forward_ms", line.forward_ms)
              .with("backward_ms", line.backward_ms)
              .with("payload_bytes_sent", line.payload_bytes_sent)
              .with("turns", line.turns)
              .with("sha256", line.sha256)
              .with("rank", static_cast<std::uint64_t>(line.rank))
              .with("world_size", static_cast<std::uint64_t>(line.world_size))
              .json());
}

} // namespace jigsaw::examples
