// SPDX-License-Identifier: Apache-2.0
// jigsawd's half of the gate: the order of loads and stores, and nothing else. No clock, no choice of who is next, no
// descriptor: callers (plugin/agent, the benchmark, tests) own those. docs/protocol.md "Gate"; tests/model/gate.pml is
// this file and gate.cpp in promela.
//
//     event (bell, timer, attach)          what the arbiter of a GPU does
//     -----------------------------------  ----------------------------------------------------------------------
//     a second process attaches            close_gate() of each; each whose claim() is holds, holds (log "run")
//     a bell rang, or a look after 100 ms  claim() of that process: not holds and it was the holder -> its turn came
//                                          back; asks -> queue it, or grant() at once while its gate is open
//     nobody holds and somebody asks       grant() to the one whose turn is next
//     a process is alone again             open_gate(); it may compute at any time from then on, and end() is silent
//     a process died (pidfd)               forget it: its claim() says nothing any more
//
// Drain the bell before claim(), never after; let one reading of claim() both decide and be logged; look at everybody
// again right before a grant, the one to be granted (still asks?) included. Nobody holds: claim() != holds for every
// living process of the GPU whose lease has not expired. A holder whose lease expired stays outside this rule until its
// claim() was seen idle or asking. One that is just about to ask reads as holding for a moment (RUNNING, or WAITING with
// its old want); its bell follows.
//
// The words are seq_cst because closing is Dekker's handshake: the arbiter writes gate and reads state, the process
// writes state and reads gate, so at least one of them sees the other. Report words are a stranger's: a value that
// means nothing counts as holding, for which the lease is the remedy.
#ifndef JIGSAW_PAGE_ARBITER_SIDE_HPP
#define JIGSAW_PAGE_ARBITER_SIDE_HPP

#include "runtime/page/page.hpp"

#include <climits>
#include <cstdint>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace jigsaw::page {

/// What a process says about its turn.
enum class Claim {
    idle, ///< has no turn and wants none
    asks, ///< waits for a grant
    holds ///< computes, or was granted a turn and has not woken up yet
};

/// state first, then want against grant. A process that is just about to ask (WAITING stored, want not yet) reads as
/// holding; its bell comes after the want, so look again then. Only the arbiter writes grant, so a WAITING process
/// whose want is granted stays a holder until it has run and ended.
inline Claim claim(const AgentPages &pages)
{
    switch (__atomic_load_n(&pages.report->state, __ATOMIC_SEQ_CST)) {
    case JIGSAW_STATE_IDLE:
        return Claim::idle;
    case JIGSAW_STATE_WAITING: {
        const std::uint32_t want = __atomic_load_n(&pages.report->want, __ATOMIC_SEQ_CST);
        return want == __atomic_load_n(&pages.directive->grant, __ATOMIC_SEQ_CST) ? Claim::holds : Claim::asks;
    }
    default:
        return Claim::holds;
    }
}

/// Number of the turn last asked for; wraps around.
inline std::uint32_t want_of(const AgentPages &pages)
{
    return __atomic_load_n(&pages.report->want, __ATOMIC_SEQ_CST);
}

inline bool gate_is_closed(const AgentPages &pages)
{
    return __atomic_load_n(&pages.directive->gate, __ATOMIC_SEQ_CST) == JIGSAW_GATE_CLOSED;
}

/// Grant what the process asked for last and wake it. Call when claim() is asks. Returns the number granted.
inline std::uint32_t grant(AgentPages &pages)
{
    const std::uint32_t number = want_of(pages);
    __atomic_store_n(&pages.directive->grant, number, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &pages.directive->grant, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return number;
}

/// From here on every begin() asks. Returns what the process was doing: holds means that it computes in a turn taken
/// while the gate was open and counts as a holder until it is idle.
inline Claim close_gate(AgentPages &pages)
{
    __atomic_store_n(&pages.directive->gate, JIGSAW_GATE_CLOSED, __ATOMIC_SEQ_CST);
    return claim(pages);
}

/// Pending wants are granted first. A process that saw the gate closed just before may still ask afterwards: its bell
/// rings, and a want behind an open gate is granted at once (it also looks at the gate again every 100 ms).
inline void open_gate(AgentPages &pages)
{
    if (claim(pages) == Claim::asks)
        grant(pages);
    __atomic_store_n(&pages.directive->gate, JIGSAW_GATE_OPEN, __ATOMIC_SEQ_CST);
    if (claim(pages) == Claim::asks)
        grant(pages);
}

/// jigsawd lives: at least every 100 ms.
inline void beat(AgentPages &pages, std::uint64_t now_ns)
{
    __atomic_store_n(&pages.directive->heartbeat_ns, now_ns, __ATOMIC_RELEASE);
}

} // namespace jigsaw::page
#endif
