// SPDX-License-Identifier: Apache-2.0
// One slice from each grant (or run) to what ends it; marks for leases, deaths and directives. A turn's depth is the one
// reported at its end: at its beginning the process still reports the iteration before.
#include "plugin/cli/trace_events.hpp"

#include "plugin/agent/json.hpp"

#include <algorithm>
#include <cstdlib>

namespace jigsaw::cli {

namespace {

double microseconds(const JsonValue &event)
{
    return static_cast<double>(event["t_ns"].integer()) / 1e3;
}

std::string depth_text(const JsonValue &event)
{
    return event["depth"].is_null() ? "" : " depth " + event["depth"].text + "/" + event["num_blocks"].text;
}

/// The viewer's own colour names; the same depth, the same colour.
const char *colour(const JsonValue &event)
{
    static constexpr const char *kColours[] = {"rail_idle", "rail_animation", "rail_response", "good",
                                               "thread_state_running"};
    const double blocks = event["num_blocks"].number_or(1);
    const double fraction = blocks > 0 ? event["depth"].number_or(blocks) / blocks : 1;
    return kColours[static_cast<int>(4 * (fraction < 0 ? 0 : fraction > 1 ? 1 : fraction))];
}

void add_argument(agent::Json &json, const JsonValue &event, const char *key)
{
    if (event[key].kind == JsonValue::Kind::number)
        json.field(key, event[key].integer());
}

/// The line's t_ns; false when it has none.
bool time_of(std::uint64_t *ret_ns, const std::string &line)
{
    static const std::string kKey = "\"t_ns\":";
    const std::size_t at = line.find(kKey);
    if (at != std::string::npos)
        *ret_ns = std::strtoull(line.c_str() + at + kKey.size(), nullptr, 10);
    return at != std::string::npos;
}

} // namespace

std::size_t recent_part(const std::string &lines, std::uint64_t last_ns)
{
    std::size_t kept = lines.size();
    std::uint64_t newest = 0, later = 0;
    for (bool first = true; kept > 0;) {
        const std::size_t before = kept < 2 ? std::string::npos : lines.rfind('\n', kept - 2);
        const std::size_t begin = before == std::string::npos ? 0 : before + 1;
        std::uint64_t ns = 0;
        if (time_of(&ns, lines.substr(begin, kept - begin))) { // any other line is add_log()'s to complain of
            if (first)
                newest = later = ns;
            first = false;
            if (ns > later || newest - ns > last_ns)
                break;
            later = ns;
        }
        kept = begin;
    }
    return kept;
}

void TraceEvents::append(const std::string &json)
{
    events_ += (events_.empty() ? "\n" : ",\n") + json;
}

void TraceEvents::row_name(std::int64_t gpu)
{
    if (std::exchange(named_[{node_, gpu}], true))
        return;
    agent::Json json;
    json.object().field("name", "thread_name").field("ph", "M").field("pid", node_).field("tid", gpu);
    append(json.object("args").field("name", "GPU " + std::to_string(gpu)).end().end().text());
}

void TraceEvents::begin_turn(const JsonValue &event)
{
    open_[{event["gpu"].integer(), event["process"].integer()}] = event;
}

void TraceEvents::end_turn(const JsonValue &event)
{
    const auto found = open_.find({event["gpu"].integer(), event["process"].integer()});
    if (found == open_.end())
        return;
    const JsonValue start = std::move(found->second);
    open_.erase(found);
    const JsonValue &told = event["iteration"].is_null() ? start : event;
    agent::Json json;
    json.object().field("name", "job " + start["job"].text + " rank " + start["rank"].text + depth_text(told));
    json.field("cat", "turn").field("ph", "X").field("cname", colour(told)).field("pid", node_);
    json.field("tid", event["gpu"].integer())
        .field("ts", microseconds(start))
        .field("dur", microseconds(event) - microseconds(start));
    json.object("args").field("end", event["event"].text);
    for (const char *key :
         {"job", "rank", "process", "number", "iteration", "depth", "num_blocks", "generation", "phase"})
        add_argument(json, told, key);
    append(json.end().end().text());
}

void TraceEvents::instant(const JsonValue &event)
{
    agent::Json json;
    json.object().field("name", event["event"].text + " job " + event["job"].text + " rank " + event["rank"].text);
    json.field("cat", "event")
        .field("ph", "i")
        .field("s", "t")
        .field("pid", node_)
        .field("tid", event["gpu"].integer());
    json.field("ts", microseconds(event)).object("args").field("why", event["why"].string_or(""));
    for (const char *key : {"job", "rank", "generation", "phase", "iteration"})
        add_argument(json, event, key);
    append(json.end().end().text());
}

void TraceEvents::add_event(const JsonValue &event)
{
    const std::string word = event["event"].text;
    if (word == "start") {
        open_.clear();
        return;
    }
    row_name(event["gpu"].integer());
    if (word == "grant" || word == "run")
        begin_turn(event);
    if (word == "release" || word == "lease" || word == "dead" || word == "open")
        end_turn(event);
    if (word == "lease" || word == "dead" || word == "directive" || word == "agreed")
        instant(event);
}

bool TraceEvents::add_log(std::string *ret_why, const std::string &title, const std::string &lines, std::size_t first_line)
{
    ++node_;
    open_.clear();
    agent::Json name;
    name.object().field("name", "process_name").field("ph", "M").field("pid", node_);
    append(name.object("args").field("name", title).end().end().text());
    std::size_t number = first_line - 1;
    for (std::size_t begin = 0; begin < lines.size();) {
        const std::size_t end = std::min(lines.find('\n', begin), lines.size());
        const std::string line = lines.substr(begin, end - begin);
        begin = end + 1;
        ++number;
        JsonValue event;
        std::string why;
        if (line.empty())
            continue;
        if (!parse_json(&event, &why, line) || event["event"].is_null()) {
            *ret_why = std::to_string(number) + ": " + (why.empty() ? "no event" : why);
            return false;
        }
        add_event(event);
    }
    return true;
}

std::string TraceEvents::text() const
{
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + events_ + "\n]}\n";
}

} // namespace jigsaw::cli
