// SPDX-License-Identifier: Apache-2.0
// The ring of events and its text form.
#include "plugin/agent/trace.hpp"

#include "plugin/agent/json.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace jigsaw::agent {

namespace {

constexpr std::size_t kUnwrittenLimit = 1000; ///< events

} // namespace

const char *event_name(EventKind kind)
{
    static constexpr const char *kNames[] = {"start",     "open",   "close",    "run",   "want",
                                             "cancel",    "grant",  "release",  "lease", "dead",
                                             "directive", "agreed", "iteration"};
    return kNames[static_cast<int>(kind)];
}

Event event_of(EventKind kind, const Process &process, std::uint64_t now_ns)
{
    Event event;
    event.ns = now_ns;
    event.kind = kind;
    event.gpu = process.gpu;
    event.process = process.id;
    event.job = process.job.first;
    event.restart = process.job.second;
    event.rank = process.rank;
    event.pid = process.pid;
    event.uid = process.uid;
    event.number = process.seat.granted;
    if (process.report_valid) {
        event.iteration = process.report.iteration;
        event.depth = process.report.depth;
        event.num_blocks = process.report.num_blocks;
        event.generation = process.report.agreed.generation;
        event.phase = process.report.agreed.phase;
    }
    return event;
}

Event start_event(std::uint64_t now_ns)
{
    Event event;
    event.ns = now_ns;
    event.kind = EventKind::start;
    return event;
}

std::string format_event(const Event &event)
{
    Json json;
    json.object().field("t_ns", event.ns).field("event", event_name(event.kind));
    if (event.process != 0) {
        json.field("gpu", event.gpu).field("process", event.process);
        json.field("job", event.job).field("restart", event.restart).field("rank", event.rank);
        json.field("pid", event.pid).field("number", event.number);
    }
    if (event.num_blocks > 0) {
        json.field("iteration", event.iteration).field("depth", event.depth).field("num_blocks", event.num_blocks);
        json.field("generation", event.generation).field("phase", static_cast<std::int64_t>(event.phase));
    }
    if (event.why != nullptr)
        json.field("why", event.why);
    return json.end().text();
}

void Trace::set_capacity(std::size_t events)
{
    if (events == capacity_)
        return;
    capacity_ = events;
    ring_.clear();
    added_ = 0;
}

void Trace::set_file(const std::string &path)
{
    flush();
    file_.reset();
    file_path_ = path;
    if (path.empty())
        return;
    file_.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640));
    if (!file_)
        log_.error("trace_file " + path + ": " + std::strerror(errno) + "; the turn log is kept in memory only");
}

/// Whole lines in one write, so that what a killed jigsawd leaves in the file ends with a line.
void Trace::flush()
{
    std::string text;
    for (const Event &event : unwritten_)
        text += format_event(event) + "\n";
    unwritten_.clear();
    if (!file_ || text.empty() ||
        write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
        return;
    log_.error("trace_file " + file_path_ + ": " + std::strerror(errno) + "; no more is written to it");
    file_.reset();
}

void Trace::add(Event event)
{
    event.ns = last_ns_ = std::max(last_ns_, event.ns);
    if (file_) {
        unwritten_.push_back(event);
        if (unwritten_.size() >= kUnwrittenLimit)
            flush();
    }
    if (capacity_ == 0)
        return;
    if (ring_.size() < capacity_)
        ring_.push_back(event);
    else
        ring_[added_ % capacity_] = event;
    ++added_;
}

std::string Trace::lines_since(bool *ret_more, std::uint64_t since_ns, std::size_t limit_bytes, std::uint32_t uid,
                               bool everybody) const
{
    std::string text;
    *ret_more = false;
    // Times never go back, so the first event to tell can be searched for.
    const std::uint64_t oldest = added_ - ring_.size();
    std::uint64_t low = oldest, high = added_;
    while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        if (ring_[middle % capacity_].ns > since_ns)
            high = middle;
        else
            low = middle + 1;
    }
    std::uint64_t last_ns = 0;
    for (std::uint64_t n = low; n < added_; ++n) {
        const Event &event = ring_[n % capacity_];
        // Never between two events of one time: the next call asks for later ones.
        if (text.size() >= limit_bytes && event.ns != last_ns) {
            *ret_more = true;
            break;
        }
        last_ns = event.ns;
        if (uid == 0 || everybody || event.process == 0 || event.uid == uid)
            text += format_event(event) + "\n";
    }
    return text;
}

} // namespace jigsaw::agent
