// SPDX-License-Identifier: Apache-2.0
// What happens to a newcomer and to the residents it would join: the turn model of the scheduling study
// (sections 2, 3, 7). Times in seconds; "isolated" seconds are those of a job that has its GPUs to itself.
#ifndef JIGSAW_CORE_PREDICTION_HPP
#define JIGSAW_CORE_PREDICTION_HPP

#include "plugin/core/placement.hpp"

#include <unordered_map>
#include <vector>

namespace jigsaw::core {

/// What one job asks of the resources around a GPU, as shares of its isolated iteration.
struct Load {
    bool known = false;
    double gpu = 1, network = 0;                 ///< at full depth; without a profile: busy all the time
    double gpu_partial = 1, network_partial = 0; ///< mean over iterations at the depth it may run at
    double host = 0;                             ///< CPU and input: both overlap with others' turns
};

/// `workers`: GPUs of the job, one rank on each.
Load load_of(const SpbRequest &spb, const Profile &profile, std::uint32_t workers);

/// By how much everybody on a GPU with these loads is slowed: share_slowdown * max(1, largest sum of loads).
/// Partial depth is used where it is better after its extra iterations.
double slowdown_of(const std::vector<Load> &loads, const SharingPolicy &policy);

/// What joining would do.
struct Prediction {
    bool known = true;        ///< false: somebody has no profile; the rules that need numbers do not apply
    double own_slowdown = 1;  ///< of the newcomer
    double gain = 0;          ///< GPU rate added, in GPUs that work at isolated speed
    double worst_finish = 1;  ///< largest predicted finish of a resident over its isolated run
    JobId worst_job = 0;      ///< whose
    bool short_visit = true;  ///< the newcomer is gone after a tenth of the shortest resident's remaining run
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
        double gpus = 0;
        double slow_now = 1, slow_then = 1;
        double elapsed_s = 0, progress_s = 0, remaining_s = 0;
        double together_s(double own_s) const; ///< wall time both run
        double delay_s(double own_s) const;    ///< of its finish
    };

    const Load &load(JobId id);
    double slowdown_now(JobId id);
    double slowdown_on(const std::vector<JobId> &residents, bool with_newcomer);
    Member member(JobId id);
    std::vector<Member> members(const std::vector<NodeGpus> &where, double *ret_own_slowdown);
    double score(const std::vector<Member> &members, double own_gpus, double own_slowdown) const;

    const Cluster &cluster_;
    const PlacementRequest &job_;
    const SharingPolicy &policy_;
    Load own_;
    std::unordered_map<JobId, Load> loads_;
    std::unordered_map<JobId, double> slow_now_;
};

} // namespace jigsaw::core
#endif
