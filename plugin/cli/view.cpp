// SPDX-License-Identifier: Apache-2.0
// From a status document to tables.
#include "plugin/cli/view.hpp"

#include "plugin/cli/table.hpp"

#include <pwd.h>

namespace jigsaw::cli {

namespace {

std::string joined(const JsonValue &array, const char *separator)
{
    std::string text;
    for (const JsonValue &item : array.items)
        text += (text.empty() ? "" : separator) + item.text;
    return text.empty() ? "-" : text;
}

std::string user_name(std::int64_t uid)
{
    passwd entry{}, *found = nullptr;
    char buffer[4096];
    getpwuid_r(static_cast<uid_t>(uid), &entry, buffer, sizeof buffer, &found);
    return found ? found->pw_name : std::to_string(uid);
}

std::string memory(double bytes)
{
    return bytes <= 0 ? "-" : with_decimals(bytes / (1u << 20), 0) + " MiB";
}

/// Times a second that a counter of `now` grew since `before`; "-" without an earlier look.
std::string rate(const JsonValue &now, const JsonValue &before, const char *counter, double seconds)
{
    if (before.is_null() || seconds <= 0 || now[counter].is_null() || before[counter].is_null())
        return "-";
    return with_decimals((now[counter].number - before[counter].number) / seconds, 1);
}

const JsonValue &with_member(const JsonValue &array, const char *key, const JsonValue &wanted)
{
    static const JsonValue kNull;
    for (const JsonValue &item : array.items) {
        if (item[key].text == wanted.text && !wanted.text.empty())
            return item;
    }
    return kNull;
}

std::string holder(const JsonValue &gpu)
{
    const JsonValue &holder = gpu["holder"];
    if (holder.is_null())
        return "-";
    const std::string who = holder["job_id"].is_null()
                                ? "another user's"
                                : "job " + holder["job_id"].text + " rank " + holder["rank"].text;
    return who + ", " + with_decimals(holder["held_ms"].number, 0) + " ms";
}

std::string gpu_table(const JsonValue &now, const JsonValue &before, double seconds)
{
    Table table(
        {">GPU", "CORES", "GATE", ">PROCS", ">WAIT", ">TURNS", ">TURNS/S", ">HELD", ">LEASES", "JOBS", "HOLDER"});
    for (const JsonValue &gpu : now["gpus"].items) {
        const JsonValue &earlier = with_member(before["gpus"], "index", gpu["index"]);
        const std::string cores = gpu["cores"].string_or("");
        table.row({gpu["index"].text, cores.empty() ? "-" : cores, gpu["gate"].text, gpu["processes"].text,
                   gpu["waiting"].text, gpu["turns"].text, rate(gpu, earlier, "turns", seconds),
                   duration(gpu["turn_s"].number), gpu["leases_expired"].text, joined(gpu["residents"], ","),
                   holder(gpu)});
    }
    return table.text();
}

std::string phase(const JsonValue &directive)
{
    if (directive.is_null())
        return "-";
    return directive["policy"].text + (directive["direction"].number < 0 ? " -" : " +") + directive["phase"].text +
           " #" + directive["generation"].text;
}

/// "-" of a jigsawd that is older than this command.
std::string group(const JsonValue &job)
{
    return job["group"].is_null() ? "-" : job["group"].text;
}

std::string job_table(const JsonValue &now)
{
    Table table({">GROUP", ">JOB", "USER", "GPUS", "OPTIONS", "FOLLOWS", ">DEPTH", ">SHARE", ">GPU TIME", "STATE"});
    for (const JsonValue &job : now["jobs"].items) {
        if (job["masked"].boolean) {
            table.row({group(job), "-", "another", joined(job["gpus"], ","), "-", "-", "-", "-", "-", "masked (PrivateData)"});
            continue;
        }
        std::string state = job["over"].boolean ? "over" : job["attached"].boolean ? "attached" : "not attached";
        for (const JsonValue &sentence : job["misbehaving"].items)
            state += "; " + sentence.text;
        table.row({group(job), job["job_id"].text, user_name(job["uid"].integer()), joined(job["gpus"], ","),
                   job["options"].text, phase(job["agreed"]), percent(job["depth_fraction"].number),
                   percent(job["turn_share"].number), duration(job["gpu_seconds"].number), state});
    }
    return table.text();
}

std::string process_table(const JsonValue &now, const JsonValue &before, double seconds)
{
    Table table({">JOB", ">RANK", ">PID", ">GPU", "STATE", ">ITER", ">ITER/S", ">DEPTH", ">TURNS", ">TURN",
                 ">WAIT", ">SYNC", ">MEMORY", ">LOSS"});
    for (const JsonValue &job : now["jobs"].items) {
        const JsonValue &earlier_job = with_member(before["jobs"], "job_id", job["job_id"]);
        for (const JsonValue &process : job["processes"].items) {
            const JsonValue &earlier = with_member(earlier_job["processes"], "pid", process["pid"]);
            const bool reports = !process["iteration"].is_null();
            const double turns = process["turns"].number > 0 ? process["turns"].number : 1;
            table.row({job["job_id"].text, process["rank"].text, process["pid"].text, process["gpu"].text,
                       process["state"].text, reports ? process["iteration"].text : "-",
                       rate(process, earlier, "iteration", seconds),
                       reports ? process["depth"].text + "/" + process["num_blocks"].text : "-",
                       process["turns"].text, with_decimals(1e3 * process["turn_s"].number / turns, 1) + " ms",
                       with_decimals(1e3 * process["wait_s"].number / turns, 1) + " ms",
                       reports ? with_decimals(process["sync_ms"].number, 1) + " ms" : "-",
                       memory(process["memory_peak_bytes"].number_or(0)),
                       process["loss"].kind == JsonValue::Kind::number ? with_decimals(process["loss"].number, 4)
                                                                       : "-"});
        }
    }
    return table.text();
}

} // namespace

std::string render_status(const JsonValue &now, const JsonValue &before)
{
    const double seconds = before.is_null() ? 0 : (now["now_ns"].number - before["now_ns"].number) / 1e9;
    std::string text = "node " + now["node"].text + ": jigsawd " + now["version"].text + ", turns " +
                       now["turns"].text + ", depth " + now["depth"].text + ", phases " + now["phases"].text +
                       "\n";
    if (now["jobs"].items.empty())
        return text + "no sharing jobs on this node\n";
    return text + "\n" + gpu_table(now, before, seconds) + "\n" + job_table(now) + "\n" +
           process_table(now, before, seconds);
}

} // namespace jigsaw::cli
