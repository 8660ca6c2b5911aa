// SPDX-License-Identifier: Apache-2.0
// One GPU's turns. A seat is *counted* while it may compute: because it was granted, or because it ran when its gate was
// closed. Nobody is granted while a seat is counted, so two well-behaved processes never compute together. A counted
// seat that dies, stops or outlives its lease is no longer counted: the gate is cooperative, waiting longer helps nobody.
#include "plugin/agent/arbiter.hpp"

#include "runtime/page/arbiter_side.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace jigsaw::agent {

namespace {

bool runs(const Process &process)
{
    return __atomic_load_n(&process.pages.report->state, __ATOMIC_SEQ_CST) == JIGSAW_STATE_RUNNING;
}

} // namespace

Arbiter::Arbiter(int gpu, const ArbiterSettings &settings, ArbiterContext &context)
    : gpu_(gpu), settings_(settings), context_(context)
{
}

core::TurnQueue::Process Arbiter::queue_entry(const Process &process) const
{
    core::TurnQueue::Process entry;
    entry.id = process.id;
    entry.job = process.job.first;
    entry.job_start_ns = process.job_start_ns;
    entry.weight = process.weight;
    return entry;
}

Process *Arbiter::find(std::uint64_t id) const
{
    const auto found = std::find_if(seats_.begin(), seats_.end(), [id](const Process *p) { return p->id == id; });
    return found == seats_.end() ? nullptr : *found;
}

bool Arbiter::anybody_counted() const
{
    return std::any_of(seats_.begin(), seats_.end(), [](const Process *p) { return p->seat.counted; });
}

/// Does anybody wait who could go on at once?
bool Arbiter::anybody_ready() const
{
    return std::any_of(seats_.begin(), seats_.end(),
                       [](const Process *p) { return p->seat.waiting && !p->seat.stopped; });
}

const Process *Arbiter::holder() const
{
    const auto found =
        std::find_if(seats_.begin(), seats_.end(), [](const Process *p) { return p->seat.counted; });
    return found == seats_.end() ? nullptr : *found;
}

std::size_t Arbiter::waiting() const
{
    return static_cast<std::size_t>(
        std::count_if(seats_.begin(), seats_.end(), [](const Process *p) { return p->seat.waiting; }));
}

std::uint64_t Arbiter::lease_ns(const Process &process) const
{
    return std::max(queue_.lease_ns(process.id), settings_.lease_min_ns);
}

void Arbiter::add(Process &process, std::uint64_t now_ns)
{
    seats_.push_back(&process);
    queue_.add(queue_entry(process));
    if (!closed_ && may_close()) {
        close_gates(now_ns); // its own too
        return;
    }
    if (closed_)
        page::close_gate(process.pages);
    context_.trace.add(event_of(closed_ ? EventKind::close : EventKind::open, process, now_ns));
}

void Arbiter::remove(Process &process, std::uint64_t now_ns)
{
    if (process.seat.counted)
        free_turn(process, now_ns, 1);
    seats_.erase(std::remove(seats_.begin(), seats_.end(), &process), seats_.end());
    queue_.remove(process.id);
    update_gates(now_ns);
    dispatch(now_ns);
}

bool Arbiter::may_close() const
{
    return settings_.turns && settled_ && seats_.size() >= 2;
}

void Arbiter::set_settled(bool settled, std::uint64_t now_ns)
{
    settled_ = settled;
    update_gates(now_ns);
}

void Arbiter::set_settings(const ArbiterSettings &settings, std::uint64_t now_ns)
{
    settings_ = settings;
    update_gates(now_ns);
}

void Arbiter::set_weight(Process &process, double weight)
{
    process.weight = weight;
    queue_.add(queue_entry(process)); // a known id: only what is said of it changes
}

void Arbiter::update_gates(std::uint64_t now_ns)
{
    if (may_close() && !closed_)
        close_gates(now_ns);
    else if (!may_close() && closed_)
        open_gates(now_ns);
}

void Arbiter::close_gates(std::uint64_t now_ns)
{
    closed_ = true;
    for (Process *process : seats_) {
        const page::Claim claim = page::close_gate(process->pages);
        context_.trace.add(event_of(EventKind::close, *process, now_ns));
        if (claim == page::Claim::holds)
            count(*process, now_ns);
    }
    for (Process *process : seats_)
        process->seat.waiting = false; // one that asked behind an open gate a moment ago is seen again
    dispatch(now_ns);
}

void Arbiter::open_gates(std::uint64_t now_ns)
{
    for (Process *process : seats_)
        observe(*process, now_ns);
    // Several at once (turns switched off): the model knows no such step, so its log starts anew.
    const bool alone = seats_.size() <= 1;
    if (!alone)
        context_.trace.add(start_event(now_ns));
    closed_ = false;
    for (Process *process : seats_) {
        Seat &seat = process->seat;
        if (seat.counted)
            free_turn(*process, now_ns, 1);
        seat.counted = seat.overrun = seat.stopped = seat.unasked = false;
        if (seat.waiting && alone)
            context_.trace.add(event_of(EventKind::grant, *process, now_ns));
        if (seat.waiting)
            grant(*process, now_ns); // pending wants first
        page::open_gate(process->pages);
        context_.trace.add(event_of(EventKind::open, *process, now_ns));
    }
}

void Arbiter::release_all(std::uint64_t now_ns)
{
    settings_.turns = false;
    update_gates(now_ns);
}

void Arbiter::count(Process &process, std::uint64_t now_ns)
{
    process.seat.counted = true;
    process.seat.since_ns = now_ns;
    if (!queue_.holder())
        queue_.granted(process.id, now_ns);
    context_.trace.add(event_of(EventKind::run, process, now_ns));
}

/// Its bell rang: drained before its words are read, so that whatever it says later rings again.
void Arbiter::look(Process &process, std::uint64_t now_ns)
{
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = read(process.bell.get(), &rings, sizeof rings);
    observe(process, now_ns);
    dispatch(now_ns);
}

/// One reading of its words decides and is logged. A bell that rang meanwhile stays rung, and look() follows.
void Arbiter::observe(Process &process, std::uint64_t now_ns)
{
    Seat &seat = process.seat;
    const page::Claim claim = page::claim(process.pages);
    if (claim != page::Claim::holds && (seat.counted || seat.overrun))
        notice_end(process, now_ns);
    if (claim != page::Claim::asks && seat.waiting)
        notice_cancel(process, now_ns);
    if (claim == page::Claim::asks && !seat.waiting)
        notice_want(process, now_ns);
    if (claim == page::Claim::holds && closed_ && !seat.counted && !seat.overrun && runs(process))
        count_unasked(process, now_ns);
}

/// It computes in a turn that nobody gave it: we were silent for too long, or it does not obey. It counts as a holder
/// for as long as a lease, except when it is known not to obey: then nobody waits for it.
void Arbiter::count_unasked(Process &process, std::uint64_t now_ns)
{
    if (process.seat.rogue)
        return;
    process.seat.counted = process.seat.unasked = true;
    process.seat.since_ns = now_ns;
}

void Arbiter::notice_cancel(Process &process, std::uint64_t now_ns)
{
    process.seat.waiting = false;
    queue_.cancel(process.id);
    if (closed_)
        context_.trace.add(event_of(EventKind::cancel, process, now_ns));
}

void Arbiter::notice_want(Process &process, std::uint64_t now_ns)
{
    Seat &seat = process.seat;
    seat.waiting = true;
    seat.asked_ns = now_ns;
    if (!closed_)
        return; // granted at once, and not told: an open gate needs no decision
    if (!seat.stopped)
        queue_.want(process.id, now_ns);
    Event event = event_of(EventKind::want, process, now_ns);
    event.number = page::want_of(process.pages);
    context_.trace.add(event);
}

void Arbiter::notice_end(Process &process, std::uint64_t now_ns)
{
    Seat &seat = process.seat;
    const bool late = seat.overrun, unasked = seat.unasked;
    process.read_report(now_ns);
    seat.overrun = seat.unasked = false;
    if (!late) // else the turn was accounted for when it was taken away
        free_turn(process, now_ns, iterations_of_turn(process, now_ns - seat.since_ns));
    if (unasked)
        return; // the log knows nothing of it
    context_.trace.add(event_of(EventKind::release, process, now_ns));
    if (!late)
        context_.lease_outcome(process, false);
}

/// 1 for a turn in which the reported iteration advanced, else its length in mean turns of the process: a process that
/// reports no advance, by mistake or for more than its share, still pays for the time it held.
double Arbiter::iterations_of_turn(Process &process, std::uint64_t turn_ns)
{
    Seat &seat = process.seat;
    const bool advanced = process.report_valid && process.report.iteration != seat.iteration;
    const auto turn = static_cast<double>(turn_ns);
    const double mean = seat.mean_turn_ns > 0 ? seat.mean_turn_ns : turn;
    seat.iteration = process.report.iteration;
    seat.mean_turn_ns = seat.mean_turn_ns > 0 ? 0.9 * seat.mean_turn_ns + 0.1 * turn : turn;
    return advanced || mean <= 0 ? 1 : std::clamp(turn / mean, 0.05, 1.0);
}

void Arbiter::free_turn(Process &process, std::uint64_t now_ns, double iterations)
{
    Seat &seat = process.seat;
    const std::uint64_t turn_ns = now_ns - seat.since_ns;
    seat.counted = false;
    seat.held_ns += turn_ns;
    held_ns_ += turn_ns;
    ++seat.turns;
    ++turns_;
    if (queue_.holder() == process.id)
        queue_.released(process.id, now_ns, iterations);
    double cycle_ns = 0;
    for (const Process *other : seats_)
        cycle_ns += other->seat.mean_turn_ns;
    idle_until_ns_ = now_ns + static_cast<std::uint64_t>(settings_.anticipation * cycle_ns);
}

void Arbiter::take_away(Process &process, std::uint64_t now_ns, const char *why)
{
    process.seat.overrun = true;
    free_turn(process, now_ns, 1);
    if (process.seat.unasked)
        return; // the log never had it
    Event event = event_of(EventKind::lease, process, now_ns);
    event.why = why;
    context_.trace.add(event);
}

/// Is somebody owed a turn (at least one iteration behind the next one) who may ask within the time we may idle?
bool Arbiter::idle_for_owed(std::uint64_t next_id, std::uint64_t now_ns) const
{
    if (settings_.anticipation <= 0 || now_ns >= idle_until_ns_)
        return false;
    const double next_progress = queue_.progress(next_id);
    return std::any_of(seats_.begin(), seats_.end(), [&](const Process *p) {
        return !p->seat.waiting && !p->seat.stopped && !p->seat.overrun &&
               queue_.progress(p->id) + 1 <= next_progress;
    });
}

void Arbiter::dispatch(std::uint64_t now_ns)
{
    if (!closed_) {
        for (Process *process : seats_) {
            if (process->seat.waiting)
                grant(*process, now_ns);
        }
        return;
    }
    for (Process *process : seats_)
        observe(*process, now_ns);
    while (!anybody_counted()) {
        const auto next = queue_.next(now_ns);
        Process *process = next ? find(*next) : nullptr;
        if (process == nullptr || idle_for_owed(*next, now_ns))
            return;
        if (page::claim(process->pages) == page::Claim::asks)
            grant(*process, now_ns);
        else
            notice_cancel(*process, now_ns); // gave up in this moment
    }
}

void Arbiter::grant(Process &process, std::uint64_t now_ns)
{
    Seat &seat = process.seat;
    seat.waiting = false;
    seat.waited_ns += now_ns - seat.asked_ns;
    if (!closed_) {
        queue_.cancel(process.id);
        seat.granted = page::grant(process.pages);
        return;
    }
    seat.counted = true;
    seat.overrun = false;
    seat.since_ns = now_ns;
    queue_.granted(process.id, now_ns);
    seat.granted = page::grant(process.pages);
    context_.trace.add(event_of(EventKind::grant, process, now_ns));
    context_.granted(process);
}

} // namespace jigsaw::agent
