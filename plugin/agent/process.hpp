// SPDX-License-Identifier: Apache-2.0
// One attached process: a rank of a job on one GPU. Owned by Agent; the arbiter of its GPU keeps its seat here.
#ifndef JIGSAW_AGENT_PROCESS_HPP
#define JIGSAW_AGENT_PROCESS_HPP

#include "plugin/agent/registry.hpp"
#include "runtime/page/page.hpp"

#include <cstdint>

namespace jigsaw::agent {

/// A process's place at the gate of its GPU. Changed by Arbiter alone.
struct Seat {
    std::uint32_t granted = 0;     ///< number of the last want that was granted, for the log
    bool waiting = false;          ///< asked, not granted
    bool counted = false;          ///< holds a turn, or runs ungated and counts as a holder
    bool overrun = false;          ///< lost its turn and has not given it back since
    bool stopped = false;          ///< in state T or Z when looked at: gets no turns until it goes on
    std::uint64_t since_ns = 0;    ///< counted since
    std::uint64_t asked_ns = 0;    ///< waiting since
    std::uint64_t iteration = 0;   ///< reported when it last gave back
    double mean_turn_ns = 0;       ///< moving average
    bool unasked = false;          ///< counted, but nobody gave it this turn
    bool rogue = false;            ///< does not obey: nobody waits for it
    unsigned rogue_looks = 0;      ///< looks in a row that saw it run without a turn
    std::uint64_t turns = 0, held_ns = 0, waited_ns = 0, leases_expired = 0;
};

struct Process {
    static constexpr std::uint64_t kReportRetryNs = 1000000000;

    std::uint64_t id = 0; ///< jigsawd's own number
    JobKey job;
    std::uint64_t job_start_ns = 0;
    double weight = 1;
    std::uint32_t step = 0, rank = 0, local_rank = 0, world_size = 1, uid = 0;
    pid_t pid = 0;
    std::uint64_t start_ticks = 0;
    int gpu = -1;
    std::uint64_t connection = 0;
    std::uint64_t told_generation = 0; ///< by the process when it attached
    std::uint64_t attached_ns = 0;

    UniqueFd pidfd, bell;
    page::AgentPages pages;
    page::ReportView report;    ///< last whole copy
    bool report_valid = false;
    std::uint64_t report_retry_ns = 0;
    Seat seat;
    /// What it said of its run when it first did: what it has done since then tells how long the rest will take.
    struct Progress {
        bool known = false;
        double share = 0;
        std::uint64_t at_ns = 0, waited_ns = 0;
    } first_progress;

    /// Take a new copy of the report page; a torn or bad one leaves the last, and is not tried again for a while: a
    /// process that leaves its counter odd must not cost jigsawd time at every turn.
    void read_report(std::uint64_t now_ns)
    {
        if (now_ns < report_retry_ns)
            return;
        if (!page::read_report(&report, pages.report.get())) {
            report_retry_ns = now_ns + kReportRetryNs;
            return;
        }
        report_valid = true;
        if (!first_progress.known && report.progress >= 0) // NaN: it says nothing
            first_progress = {true, report.progress, now_ns, seat.waited_ns};
    }
    /// Depth in the iteration it reports; full depth when it reports none.
    std::uint32_t depth() const { return report.depth; }
};

} // namespace jigsaw::agent
#endif
