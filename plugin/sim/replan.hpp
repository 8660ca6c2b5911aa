// SPDX-License-Identifier: Apache-2.0
// The regime of the preemptive schedulers in the literature: at every event all jobs are taken off, and the policy says
// anew who runs with whom. Discrete events, no randomness.
#ifndef JIGSAW_SIM_REPLAN_HPP
#define JIGSAW_SIM_REPLAN_HPP

#include "plugin/sim/cycle.hpp"
#include "plugin/sim/outcome.hpp"

#include <array>
#include <limits>
#include <vector>

namespace jigsaw::sim {

/// When a job pays the time to restart.
enum class RestartRule {
    on_start,    ///< when it starts after it did not run
    every_event, ///< the peer's: at every event, moved or not; an end falls where it would without
    never
};

struct JobState {
    double remaining = 0;  ///< iterations
    double attained_s = 0; ///< time it held GPUs
    double overhead_s = 0; ///< of restarting, still to be paid
    double slowdown = 1;
    double end_s = std::numeric_limits<double>::infinity(); ///< if nothing happens before
    bool running = false;
};

/// Jobs that share the same GPUs.
struct PlannedGroup {
    std::array<int, kMaxSharing> jobs{};
    int count = 0;
};

class ReplanPolicy {
  public:
    virtual ~ReplanPolicy() = default;
    virtual void arrive(int job) = 0;
    virtual void leave(int job) = 0; ///< it has ended
    virtual void advanced() {}       ///< running jobs have made progress
    /// A time at which it wants to plan though nothing happens.
    virtual double next_event_s() const { return std::numeric_limits<double>::infinity(); }
    virtual void plan(double now_s, std::vector<PlannedGroup> *ret_groups) = 0;
};

/// What a policy may look at; it outlives the policy.
struct ReplanView {
    const Workload &workload;
    const Slowdowns &slowdowns;
    ClusterShape cluster;
    std::vector<JobState> states;

    int gpus(int job) const { return workload.gpus_of(workload.jobs[static_cast<std::size_t>(job)]); }
    TypeId type(int job) const
    {
        return static_cast<TypeId>(workload.jobs[static_cast<std::size_t>(job)].type);
    }
    const JobState &state(int job) const { return states[static_cast<std::size_t>(job)]; }
    double remaining_s(int job) const ///< of an isolated run
    {
        return state(job).remaining * workload.jobs[static_cast<std::size_t>(job)].iteration_s;
    }
};

/// Run to the end. `make` is given the view.
using PolicyMaker = std::function<std::unique_ptr<ReplanPolicy>(const ReplanView &view)>;
Outcome run_replanning(const Slowdowns &slowdowns, const RunOptions &options, RestartRule restart,
                       const PolicyMaker &make);

} // namespace jigsaw::sim
#endif
