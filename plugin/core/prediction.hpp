// SPDX-License-Identifier: Apache-2.0
// What happens to a newcomer and to the residents it would join: the turn model of the scheduling study
// (sections 2, 3, 7). Times in seconds; "isolated" seconds are those of a job that has its GPUs to itself.
#ifndef JIGSAW_CORE_PREDICTION_HPP
#define JIGSAW_CORE_PREDICTION_HPP

#include "plugin/core/placement.hpp"

#include <unordered_map>
#include <vector>

namespace jigsaw::core {

/// By how much everybody on a GPU with these loads is slowed: share_slowdown * max(1, largest sum of loads).
/// Partial depth is used where it is better after its extra iterations.
double slowdown_of(const std::vector<Load> &loads, const SharingCosts &costs);

/// How far a job is: measured progress where there is some, else time since its start at the present slow-down.
struct Remaining {
    double elapsed_s = 0;   ///< wall
    double progress_s = 0;  ///< isolated
    double remaining_s = 0; ///< isolated; never 0
};
Remaining remaining_of(const Resident &job, double slowdown_now, std::int64_t now_s);

/// What joining would do.
struct Prediction {
    bool known = true;        ///< false: somebody has no profile; the rules that need numbers do not apply
    double own_slowdown = 1;  ///< of the newcomer
    double gain = 0;          ///< GPU rate added, in GPUs that work at isolated speed
    double worst_finish = 1;  ///< largest predicted finish of a resident over its isolated run
    JobId worst_job = 0;      ///< whose
    double worst_delay = 0;   ///< largest delay of a resident by this join over its isolated run
    bool short_visit = true;  ///< the newcomer is gone after a tenth of the shortest resident's remaining run
    bool interlocked = true;  ///< everybody on these GPUs runs at partial depth, and that is the better choice
    std::size_t most_jobs = 1; ///< on one of these GPUs, the newcomer counted
    double own_finish_s = 0;  ///< until the newcomer ends if it joins
    double free_in_s = 0;     ///< until the last of the residents has left, were the newcomer to wait for them
    double own_run_s = 0;     ///< isolated run taken for the newcomer
    double score = 0;         ///< seconds won over waiting, all jobs together; only where a wait was given
    std::vector<JobId> joins; ///< ascending
};

/// Predictions for one newcomer; remembers what it computed of residents, so make one per decision.
class Predictor {
  public:
    Predictor(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy);
    Prediction predict(const std::vector<NodeGpus> &where);

  private:
    struct Member {
        JobId id = 0;
        bool known = false;
        double gpus = 0;
        double slow_now = 1, slow_then = 1;
        Remaining run;
        double together_s(double own_s) const; ///< wall time both run
        double delay_s(double own_s) const;    ///< of its finish
    };

    double slowdown_now(const Resident &job);
    LoadSum sum_on(const std::vector<JobId> &residents) const;
    Member member(JobId id);
    void collect(const std::vector<NodeGpus> &where, Prediction *made);
    void raise(JobId id, double slow);
    double finish(double own_s, const Prediction &made) const;
    double score(double own_gpus, const Prediction &made) const;

    const Cluster &cluster_;
    const PlacementRequest &job_;
    const SharingPolicy &policy_;
    Load own_;
    double own_run_s_ = 0;
    std::unordered_map<JobId, Member> seen_; ///< as they are now
    std::vector<Member> members_;            ///< of the candidate looked at
};

} // namespace jigsaw::core
#endif
