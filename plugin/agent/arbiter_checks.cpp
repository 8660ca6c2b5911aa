// SPDX-License-Identifier: Apache-2.0
// What an arbiter looks at by the clock: leases, holders that are stopped, processes that ask nobody.
#include "plugin/agent/arbiter.hpp"

#include <algorithm>

namespace jigsaw::agent {

namespace {

constexpr std::uint64_t kSilenceNs = 400000000;  ///< processes take 500 ms without a heartbeat for silence
constexpr std::uint64_t kForgiveNs = 2000000000; ///< and finish their turns

} // namespace

void Arbiter::tick(std::uint64_t now_ns)
{
    // A gap between ticks means that we were stopped: processes went on without us, and that is no fault of theirs.
    if (now_ns - last_tick_ns_ > kSilenceNs)
        silent_until_ns_ = now_ns + kForgiveNs;
    last_tick_ns_ = now_ns;
    for (Process *process : seats_) {
        if (process->seat.stopped)
            check_stopped(*process, now_ns);
        check_rogue(*process, now_ns);
    }
    if (anybody_ready()) {
        for (Process *process : seats_) {
            if (process->seat.counted)
                check_holder(*process, now_ns);
        }
    }
    dispatch(now_ns);
}

void Arbiter::check_holder(Process &process, std::uint64_t now_ns)
{
    const std::uint64_t held_ns = now_ns - process.seat.since_ns;
    if (held_ns >= lease_ns(process)) {
        ++process.seat.leases_expired;
        ++leases_expired_;
        take_away(process, now_ns, "expired");
        context_.lease_outcome(process, true);
        return;
    }
    if (held_ns < kStateCheckNs)
        return;
    const char state = context_.proc_state(process);
    if (state == 'T' || state == 't' || state == 'Z' || state == 'X') {
        process.seat.stopped = true;
        take_away(process, now_ns, "stopped");
    }
}

/// A stopped process asks for nothing; when it goes on it may still run the turn that was taken away (overrun).
void Arbiter::check_stopped(Process &process, std::uint64_t now_ns)
{
    const char state = context_.proc_state(process);
    if (state == 'T' || state == 't' || state == 'Z' || state == 'X' || state == '?')
        return;
    process.seat.stopped = false;
    if (process.seat.waiting && closed_)
        queue_.want(process.id, now_ns);
}

void Arbiter::check_rogue(Process &process, std::uint64_t now_ns)
{
    Seat &seat = process.seat;
    const bool strays = seat.unasked && now_ns > silent_until_ns_ && now_ns - seat.since_ns > kStateCheckNs;
    seat.rogue_looks = strays ? seat.rogue_looks + 1 : 0;
    if (seat.rogue_looks < kRogueLooks)
        return;
    seat.rogue = true;
    seat.counted = seat.unasked = false;
    context_.rogue(process);
}

std::uint64_t Arbiter::next_check_ns(std::uint64_t now_ns) const
{
    if (!closed_ || !anybody_ready())
        return UINT64_MAX;
    std::uint64_t next = idle_until_ns_ > now_ns ? idle_until_ns_ : UINT64_MAX;
    for (const Process *process : seats_) {
        if (process->seat.counted)
            next = std::min({next, process->seat.since_ns + lease_ns(*process), now_ns + kStateCheckNs});
    }
    return next;
}

} // namespace jigsaw::agent
