// SPDX-License-Identifier: Apache-2.0
// Turn by turn: the queue of every GPU is jigsawd's own (core::TurnQueue), the depth of every rank the runtime's own
// (plan::level_of). What the turn model's formula is checked against.
#ifndef JIGSAW_SIM_TURNS_HPP
#define JIGSAW_SIM_TURNS_HPP

#include "plugin/sim/workload.hpp"
#include "runtime/plan/roles.hpp"

#include <cstdint>
#include <vector>

namespace jigsaw::sim {

/// A job whose ranks meet after every iteration: all compute, then `away_ms` off the GPU, then the next one begins.
struct TurnJob {
    std::vector<int> gpu_of_rank;
    double forward_ms = 0;
    std::vector<double> backward_ms_of_level; ///< [l-1]; the last is full depth
    double away_ms = 0;                       ///< network, CPU and input, hidden behind others' turns
    double weight = 1;
    plan::Directive directive; ///< generation 0: full depth
};

struct TurnOptions {
    double duration_ms = 100000;
    double warmup_ms = 10000;      ///< not counted
    double switch_slowdown = 1;    ///< turns take this much longer, beside others
    bool by_isolated_time = false; ///< progress counts isolated time, so that all are slowed alike; else iterations
    double patience = 0;           ///< of the turn queues
};

struct TurnResult {
    std::vector<double> iterations; ///< [job], in the counted time
    std::vector<double> gpu_busy;   ///< [gpu], share of the counted time
    double counted_ms = 0;
    /// Rate against the isolated run: an iteration alone takes forward, full backward and the time away.
    double relative_rate(std::size_t job, const TurnJob &spec) const;
};

TurnResult simulate_turns(const std::vector<TurnJob> &jobs, int gpus, const TurnOptions &options);

/// Four-worker (or N-worker) jobs of one type, all on the same GPUs, with directives as jigsawd chooses them one after
/// the other (core::wanted_directive): all at full depth when `partial_depth` is false.
std::vector<TurnJob> gang_of(const JobType &type, const DepthCurve &curve, int jobs, bool partial_depth,
                             plan::Policy policy = plan::Policy::rotate);

} // namespace jigsaw::sim
#endif
