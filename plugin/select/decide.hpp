// SPDX-License-Identifier: GPL-2.0-or-later
// select_p_job_test: where a job may run. core/placement ranks the offers; cons_tres says whether an offer also fits in
// everything that is Slurm's (cores, memory, features, topology) and picks nodes and GPUs within it.
#ifndef JIGSAW_SELECT_DECIDE_HPP
#define JIGSAW_SELECT_DECIDE_HPP

#include "plugin/select/occupancy.hpp"

namespace jigsaw::select {

/// The GPUs within which cons_tres decided; it picks among them once more when it charges the job.
struct Accepted {
    const job_record_t *job = nullptr;
    std::vector<core::NodeGpus> where;
    bool idle_too = false; ///< beside `where` all idle GPUs were on offer
};

class Decision {
  public:
    Decision(Occupancy &occupancy, const JobTest &test) : occupancy_(occupancy), test_(test) {}

    /// The job has its GPUs to itself.
    int decide_exclusive();
    /// The job may share.
    int decide_sharing();
    /// After a success of decide_sharing().
    const Accepted &accepted() const { return accepted_; }

  private:
    int try_now();
    int try_offer(const std::vector<core::NodeGpus> &where);
    int try_union();
    void accept_union();
    int try_preempting();
    int try_later();
    int run_quietly(uint16_t mode);
    bool holds_required_nodes(const std::vector<core::NodeGpus> &where) const;
    void explain_refusal() const;

    Occupancy &occupancy_;
    JobTest test_;
    core::PlacementRequest request_;
    core::SharingPolicy policy_;
    core::Offers offers_;
    std::map<int, std::vector<int>> union_; ///< node -> GPUs of any offer
    std::vector<int> nodes_;                ///< allowed
    Accepted accepted_;
};

} // namespace jigsaw::select
#endif
