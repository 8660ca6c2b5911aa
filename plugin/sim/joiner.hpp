// SPDX-License-Identifier: Apache-2.0
// The simulator's way into plugin/core: the cluster as slurmctld's plugin keeps it, and find_offers() asked as the
// plugin asks it. What may be joined is decided there, never here.
#ifndef JIGSAW_SIM_JOINER_HPP
#define JIGSAW_SIM_JOINER_HPP

#include "plugin/core/placement.hpp"
#include "plugin/sim/cycle.hpp"

#include <vector>

namespace jigsaw::sim {

/// The site's policy for a simulated cluster where everybody shares with anybody.
core::SharingPolicy site_policy(const SharingCosts &costs, int max_sharing, double pay);
/// What a user of --spb asks for: full depth, or rotating levels.
core::SpbRequest spb_request(int gpus, bool partial_depth);

class Joiner {
  public:
    Joiner(const Workload &workload, const ClusterShape &shape, const core::SharingPolicy &policy,
           bool partial_depth);

    void add(int job, const std::vector<int> &gpus, double now_s);
    void remove(int job);
    /// Isolated seconds done; called whenever the job's speed changes.
    void progress(int job, double done_s, double now_s);

    struct Wait {
        double wait_s = 0;        ///< expected, for GPUs of its own
        double waited_s = 0;
        double queue_per_gpu = 0; ///< waiting jobs per GPU of the cluster
    };
    /// GPUs that the job should share now; empty: it should wait.
    std::vector<int> place(int job, const Wait &wait, const std::vector<bool> *closed, double now_s) const;
    /// The question itself, for tests that put it to the plugin's path as well.
    core::PlacementRequest request(int job, const Wait &wait, const std::vector<bool> *closed, double now_s) const;
    const core::Cluster &cluster() const { return cluster_; }

  private:
    const Workload &workload_;
    ClusterShape shape_;
    core::SharingPolicy policy_;
    bool partial_depth_;
    core::Cluster cluster_;
    std::vector<core::Profile> profiles_; ///< [type]
};

} // namespace jigsaw::sim
#endif
