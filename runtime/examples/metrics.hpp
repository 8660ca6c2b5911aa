// SPDX-License-Identifier: Apache-2.0
// JSON lines of a run; the format stands in README.md beside this file.
#ifndef JIGSAW_EXAMPLES_METRICS_HPP
#define JIGSAW_EXAMPLES_METRICS_HPP

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace jigsaw::examples {

/// CLOCK_MONOTONIC.
std::uint64_t now_ns();

struct IterationLine {
    std::uint64_t iteration = 0, generation = 0;
    std::uint32_t depth = 0, num_blocks = 0;
    double loss = 0, lr = 0;
    std::uint64_t turn_begin_ns = 0, turn_end_ns = 0;
    double forward_ms = 0, backward_ms = 0, sync_ms = 0, turn_wait_ms = 0;
};

struct EndLine {
    std::uint64_t iterations = 0; ///< the run's, from its very beginning
    bool stopped = false;         ///< by SIGTERM, before its time
    const char *quality_name = "";
    double quality = 0;
    double mean_depth_fraction = 1, forward_ms = 0, backward_ms = 0;
    std::uint64_t payload_bytes_sent = 0, turns = 0;
    std::string sha256;
    int rank = 0, world_size = 1;
};

class Metrics {
  public:
    /// An empty path writes nothing. Throws std::runtime_error.
    explicit Metrics(const std::string &path);
    void add(const IterationLine &line);
    void add(const EndLine &line);

  private:
    void write(const std::string &json);
    struct Close {
        void operator()(std::FILE *file) const { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> file_;
};

} // namespace jigsaw::examples
#endif
