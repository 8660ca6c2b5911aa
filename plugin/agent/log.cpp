// SPDX-License-Identifier: Apache-2.0
// Levels, the standard error sink, and the limit on lines that clients cause.
#include "plugin/agent/log.hpp"

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace jigsaw::agent {

namespace {

constexpr const char *kWords[] = {"error", "warning", "info", "debug"};

std::string time_of_day()
{
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    tm parts{};
    gmtime_r(&now.tv_sec, &parts);
    char text[96];
    std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ ", parts.tm_year + 1900,
                  parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                  now.tv_nsec / 1000000);
    return text;
}

} // namespace

bool parse_level(Level *ret_level, const std::string &word)
{
    for (int i = 0; i < 4; ++i) {
        if (word == kWords[i]) {
            *ret_level = static_cast<Level>(i);
            return true;
        }
    }
    return false;
}

void Log::write(Level level, const std::string &line) const
{
    if (level <= level_ && sink_)
        sink_(level, line);
}

void Log::client(const std::string &line, std::uint64_t now_ns)
{
    const std::uint64_t second = now_ns / 1000000000u;
    if (second != second_) {
        if (suppressed_ > 0)
            warning("clients caused " + std::to_string(suppressed_) + " more lines like these; not shown");
        second_ = second;
        in_second_ = suppressed_ = 0;
    }
    if (in_second_ < kClientLinesPerSecond) {
        ++in_second_;
        warning(line);
    } else {
        ++suppressed_;
    }
}

Log::Sink stderr_sink()
{
    const bool journal = std::getenv("JOURNAL_STREAM") != nullptr;
    return [journal](Level level, const std::string &line) {
        constexpr int kSyslog[] = {3, 4, 6, 7};
        const std::string prefix = journal ? "<" + std::to_string(kSyslog[static_cast<int>(level)]) + ">"
                                           : time_of_day() + kWords[static_cast<int>(level)] + ": ";
        std::fprintf(stderr, "%sjigsawd: %s\n", prefix.c_str(), line.c_str());
    };
}

} // namespace jigsaw::agent
