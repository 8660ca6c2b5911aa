// SPDX-License-Identifier: Apache-2.0
// jigsaw trace: the gate log as Chrome trace events (chrome://tracing, ui.perfetto.dev): one process per node, one row per
// GPU, one slice per turn. docs/gate-log.md has the events.
#include "plugin/agent/json.hpp"
#include "plugin/cli/command.hpp"
#include "plugin/cli/json_value.hpp"
#include "plugin/cli/trace_events.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

namespace jigsaw::cli {

const char *const kTraceUsage =
    "usage: jigsaw trace [--raw] [--output FILE] [--last SECONDS] [--from FILE] [--node NAME] [--run-dir DIR]\n"
    "Writes the turn and depth log as Chrome trace events: open it in ui.perfetto.dev or chrome://tracing.\n"
    "  --raw           the log itself, JSON lines (docs/gate-log.md)\n"
    "  --output FILE   instead of standard output\n"
    "  --last SECONDS  only what happened since\n"
    "  --from FILE     a recorded log (trace_file of jigsaw.yaml) instead of asking jigsawd\n";

namespace {

struct CloseFile {
    void operator()(std::FILE *file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

bool read_all(std::string *ret_text, std::string *ret_why, const std::string &path)
{
    const File file(std::fopen(path.c_str(), "re"));
    if (!file) {
        *ret_why = path + ": " + std::strerror(errno);
        return false;
    }
    char buffer[65536];
    std::size_t got = 0;
    while ((got = std::fread(buffer, 1, sizeof buffer, file.get())) > 0)
        ret_text->append(buffer, got);
    return true;
}

bool write_all(std::string *ret_why, const std::string &path, const std::string &text)
{
    if (path.empty()) {
        std::fputs(text.c_str(), stdout);
        return true;
    }
    const File file(std::fopen(path.c_str(), "we"));
    if (file && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
        std::fflush(file.get()) == 0)
        return true;
    *ret_why = path + ": " + std::strerror(errno);
    return false;
}

std::uint64_t since_ns(double last_s)
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double then = static_cast<double>(now.tv_sec) - last_s;
    return last_s > 0 && then > 0 ? static_cast<std::uint64_t>(then * 1e9) : 0;
}

} // namespace

int run_trace(const Arguments &arguments)
{
    Where where;
    bool raw = false;
    std::string output, last, from, why;
    double last_s = 0;
    int status = kOk;
    OptionReader reader(arguments, kTraceUsage);
    reader.where(&where)
        .flag("--raw", &raw)
        .value("--output", &output)
        .value("--last", &last)
        .value("--from", &from);
    if (!reader.read(&status))
        return status;
    if (!last.empty() && !parse_positive(&last_s, last)) {
        complain("--last " + last + ": seconds above 0 are needed");
        return kUsageError;
    }
    std::vector<std::pair<std::string, std::string>> logs; // node, lines
    if (!from.empty()) {
        logs.emplace_back(from, "");
        if (!read_all(&logs.back().second, &why, from)) {
            complain(why);
            return kFailed;
        }
    } else {
        for (const Endpoint &endpoint : find_endpoints(&why, where)) {
            logs.emplace_back(endpoint.node, "");
            if (!fetch_trace(&logs.back().second, &why, endpoint, since_ns(last_s))) {
                complain("node " + endpoint.node + ": " + why);
                return kFailed;
            }
        }
    }
    if (logs.empty()) {
        complain(why);
        return kFailed;
    }
    TraceEvents events;
    std::string text;
    for (const auto &[node, lines] : logs) {
        if (raw)
            text += lines;
        else if (!events.add_log(&why, node, lines)) {
            complain(node + ":" + why);
            return kFailed;
        }
    }
    if (!write_all(&why, output, raw ? text : events.text())) {
        complain(why);
        return kFailed;
    }
    return kOk;
}

} // namespace jigsaw::cli
