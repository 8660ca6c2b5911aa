// SPDX-License-Identifier: GPL-2.0-or-later
// core::Cluster kept in step with slurmctld's job records: changed only here, when Slurm charges or frees GPUs.
#ifndef JIGSAW_SELECT_OCCUPANCY_HPP
#define JIGSAW_SELECT_OCCUPANCY_HPP

#include "plugin/select/requests.hpp"

namespace jigsaw::select {

class Occupancy {
  public:
    const core::Cluster &cluster() const { return cluster_; }

    /// Node indices are about to mean something else.
    void forget() { *this = Occupancy(); }
    /// See whether the node still has the GPUs we think it has; cheap when it does.
    void refresh_node(int node);
    void refresh_nodes(const std::vector<int> &nodes);

    /// Slurm has charged the job's GPUs (or has charged other ones: a job already there is replaced).
    void add(job_record_t *job);
    void remove(core::JobId job) { cluster_.remove(job); }
    void remove_from_node(core::JobId job, int node) { cluster_.remove_from_node(job, node); }
    /// Everything anew from slurmctld's jobs.
    void rebuild();
    /// Compare with slurmctld's jobs and nodes, and rebuild when they differ. The number of differences, logged.
    int audit();

    /// [gpu] held by a resident. Empty: the node has no GPUs of ours.
    std::vector<bool> taken(int node) const;
    /// Job records of the residents of a node.
    std::vector<job_record_t *> residents_of(int node) const;
    /// Nodes on which a job holds GPUs.
    std::vector<int> nodes_of(core::JobId job) const;
    /// Jobs with which it shares at least one GPU.
    std::vector<core::JobId> neighbours_of(core::JobId job) const;
    /// Does any GPU of the node have two residents?
    bool shared(int node) const;

  private:
    /// What a node looked like when it was last declared to the cluster.
    struct Shape {
        int gpus = -1;
        int lines = -1; ///< of gres.conf; they come with the node's registration
        const void *settings = nullptr; ///< the GPUs' memory comes from there
    };
    core::Cluster cluster_;
    std::vector<Shape> shapes_;
};

} // namespace jigsaw::select
#endif
