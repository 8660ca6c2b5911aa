// SPDX-License-Identifier: Apache-2.0
// jigsawd's log: levels, a sink that tests replace, and a limit on lines that clients can cause.
#ifndef JIGSAW_AGENT_LOG_HPP
#define JIGSAW_AGENT_LOG_HPP

#include <cstdint>
#include <functional>
#include <string>

namespace jigsaw::agent {

enum class Level { error, warning, info, debug };

/// "error", "warning", "info", "debug"; false for other words.
bool parse_level(Level *ret_level, const std::string &word);

class Log {
  public:
    using Sink = std::function<void(Level, const std::string &)>;
    static constexpr unsigned kClientLinesPerSecond = 10;

    Log(Level level, Sink sink) : level_(level), sink_(std::move(sink)) {}

    void error(const std::string &line) const { write(Level::error, line); }
    void warning(const std::string &line) const { write(Level::warning, line); }
    void info(const std::string &line) const { write(Level::info, line); }
    void debug(const std::string &line) const { write(Level::debug, line); }
    /// A line that any client can cause: at most kClientLinesPerSecond pass, the rest is counted and told later.
    void client(const std::string &line, std::uint64_t now_ns);
    void set_level(Level level) { level_ = level; }

  private:
    void write(Level level, const std::string &line) const;

    Level level_;
    Sink sink_;
    std::uint64_t second_ = 0;
    unsigned in_second_ = 0, suppressed_ = 0;
};

/// Standard error: with systemd's "<N>" prefix when the journal reads it, else with the time of day.
Log::Sink stderr_sink();

} // namespace jigsaw::agent
#endif
