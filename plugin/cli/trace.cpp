// SPDX-License-Identifier: Apache-2.0
// jigsaw trace: the gate log as Chrome trace events (chrome://tracing, ui.perfetto.dev): one process per node, one row per
// GPU, one slice per turn. docs/gate-log.md has the events.
#include "plugin/agent/json.hpp"
#include "plugin/cli/command.hpp"
#include "plugin/cli/json_value.hpp"
#include "plugin/cli/trace_events.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

namespace jigsaw::cli {

const char *const kTraceUsage =
    "usage: jigsaw trace [--raw] [--output FILE] [--last SECONDS] [--from FILE | " JIGSAW_CLI_WHERE "]\n"
    "Writes the turn and depth log as Chrome trace events: open it in ui.perfetto.dev or chrome://tracing.\n"
    "  --raw           the log itself, JSON lines (docs/gate-log.md)\n"
    "  --output FILE   instead of standard output\n"
    "  --last SECONDS  only what happened since; with --from: before the log's last event\n"
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
    if (std::ferror(file.get()) != 0) {
        *ret_why = path + ": " + std::strerror(errno);
        return false;
    }
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

struct GateLog {
    std::string title, lines;
    std::size_t first_line = 1; ///< of the file that it comes from
};

bool read_file(std::vector<GateLog> *ret_logs, std::string *ret_why, const std::string &path, double last_s)
{
    GateLog log;
    log.title = path;
    if (!read_all(&log.lines, ret_why, path))
        return false;
    if (last_s > 0) {
        const std::size_t begin = recent_part(log.lines, static_cast<std::uint64_t>(last_s * 1e9));
        const auto at = log.lines.begin() + static_cast<std::ptrdiff_t>(begin);
        log.first_line += static_cast<std::size_t>(std::count(log.lines.begin(), at, '\n'));
        log.lines.erase(log.lines.begin(), at);
    }
    *ret_logs = {std::move(log)};
    return true;
}

bool ask(std::vector<GateLog> *ret_logs, std::string *ret_why, const Where &where, double last_s)
{
    std::vector<GateLog> logs;
    for (const Endpoint &endpoint : find_endpoints(ret_why, where)) {
        logs.push_back({endpoint.title(), ""});
        if (!fetch_trace(&logs.back().lines, ret_why, endpoint, since_ns(last_s))) {
            *ret_why = endpoint.line(*ret_why);
            return false;
        }
    }
    *ret_logs = std::move(logs);
    return !ret_logs->empty();
}

/// The log itself, or events made of it.
bool make_text(std::string *ret_text, std::string *ret_why, const std::vector<GateLog> &logs, bool raw)
{
    TraceEvents events;
    std::string text;
    for (const GateLog &log : logs) {
        if (raw)
            text += log.lines;
        else if (!events.add_log(ret_why, log.title, log.lines, log.first_line)) {
            *ret_why = log.title + ":" + *ret_why;
            return false;
        }
    }
    *ret_text = raw ? std::move(text) : events.text();
    return true;
}

} // namespace

int run_trace(const Arguments &arguments)
{
    Where where;
    bool raw = false;
    std::string output, last, from, text, why;
    double last_s = 0;
    int status = kOk;
    OptionReader reader("trace", arguments, kTraceUsage);
    reader.where(&where)
        .flag("--raw", &raw)
        .value("--output", &output)
        .value("--last", &last)
        .value("--from", &from);
    if (!reader.read(&status))
        return status;
    if (!last.empty() && !parse_in_range(&last_s, last, 1e-6, 1e9))
        return wrong_usage("--last " + last + ": a number of seconds from 0.000001 to 1000000000 is needed");
    if (!from.empty() && !(where.socket + where.run_dir + where.node + where.config).empty())
        return wrong_usage("--from reads a file and asks nobody: leave out --node, --run-dir, --socket and --config");
    std::vector<GateLog> logs;
    const bool got = from.empty() ? ask(&logs, &why, where, last_s) : read_file(&logs, &why, from, last_s);
    if (got && make_text(&text, &why, logs, raw) && write_all(&why, output, text))
        return kOk;
    complain(why);
    return kFailed;
}

} // namespace jigsaw::cli
