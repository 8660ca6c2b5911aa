// SPDX-License-Identifier: Apache-2.0
// The turn and depth log: a ring in memory, written out as JSON lines (docs/gate-log.md) on request and, if configured,
// appended to a file as it happens.
#ifndef JIGSAW_AGENT_TRACE_HPP
#define JIGSAW_AGENT_TRACE_HPP

#include "plugin/agent/log.hpp"
#include "plugin/agent/process.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::agent {

/// The words of docs/gate-log.md, and three more about depth that the model of the gate does not look at.
enum class EventKind : std::uint8_t {
    start,     ///< jigsawd began; nothing before counts
    open,      ///< the gate of the process is open now
    close,     ///< the gate of the process is closed now
    run,       ///< closing found it computing: counts as a holder
    want,      ///< it asked for a turn
    cancel,    ///< it no longer waits for it
    grant,     ///< it got one
    release,   ///< it gave it back
    lease,     ///< its lease ended, or it is stopped: no longer counts as a holder
    dead,      ///< it ended or detached
    directive, ///< jigsawd published a directive
    agreed,    ///< the job reports that it follows another directive
    iteration  ///< it is in another iteration (seen on open gates, where no turns are given)
};
const char *event_name(EventKind kind);

struct Event {
    std::uint64_t ns = 0;
    EventKind kind = EventKind::start;
    int gpu = -1;
    std::uint64_t process = 0;
    core::JobId job = 0;
    std::uint32_t restart = 0, rank = 0;
    std::int64_t pid = 0;
    std::uint32_t uid = 0;
    std::uint32_t number = 0;    ///< of the want
    std::uint64_t iteration = 0;
    std::uint32_t depth = 0, num_blocks = 0;
    std::uint64_t generation = 0;
    std::int32_t phase = 0;
    const char *why = nullptr; ///< of lease and dead: "expired", "stopped", "detached", "died"
};
/// What every event says of a process.
Event event_of(EventKind kind, const Process &process, std::uint64_t now_ns);
Event start_event(std::uint64_t now_ns);

class Trace {
  public:
    ~Trace() { flush(); }
    Trace(Log &log, std::size_t capacity) : log_(log), capacity_(capacity) {}

    void set_capacity(std::size_t events);
    /// Append to this file from now on; "" none. Reopened at each call (log rotation).
    void set_file(const std::string &path);
    void add(Event event); ///< times never fall
    void flush(); ///< to the file; also done by itself when much has come together
    /// JSON lines of events after since_ns, up to about `limit_bytes`; *ret_more when there are more.
    /// `uid` 0 sees all, others only events of their own jobs and those without a job, unless `everybody`.
    std::string lines_since(bool *ret_more, std::uint64_t since_ns, std::size_t limit_bytes, std::uint32_t uid,
                            bool everybody) const;
    std::uint64_t added() const { return added_; }

  private:
    Log &log_;
    std::size_t capacity_;
    std::vector<Event> ring_;
    std::uint64_t last_ns_ = 0;
    std::uint64_t added_ = 0; ///< event n stands at n % capacity_
    UniqueFd file_;
    std::string file_path_;
    std::vector<Event> unwritten_; ///< made text by flush(): nothing of that between a turn's end and the next
};

/// One line, without its line end.
std::string format_event(const Event &event);

} // namespace jigsaw::agent
#endif
