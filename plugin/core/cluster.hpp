// SPDX-License-Identifier: Apache-2.0
// Who sits on which GPU. The one place where occupancy is changed: kept incrementally, so that a decision costs
// what the job and its candidates cost. No Slurm, no clock. One thread at a time (in slurmctld: under its
// locks).
#ifndef JIGSAW_CORE_CLUSTER_HPP
#define JIGSAW_CORE_CLUSTER_HPP

#include "plugin/core/gang_index.hpp"
#include "plugin/core/job.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace jigsaw::core {

struct Gpu {
    std::string type;               ///< "" when the site gives none
    std::uint64_t memory_bytes = 0; ///< 0: not configured: memory is not checked
    int core = -1;                  ///< test hosts: the CPU core that stands for it
    std::vector<JobId> residents;   ///< in order of arrival
    int link_group = -1;            ///< GPUs of a node with the same number talk fast (NVLink, socket); -1: unknown
};

struct Node {
    std::string name;
    std::vector<Gpu> gpus;
};

class Cluster {
  public:
    /// (Re)declare the node at `index`; residents on GPUs that remain are kept, those on GPUs that are gone
    /// lose them. The residents in `gpus` are not looked at: add() is the only way in.
    void set_node(int index, const std::string &name, const std::vector<Gpu> &gpus);
    int node_count() const { return static_cast<int>(nodes_.size()); }
    const Node &node(int index) const { return nodes_.at(static_cast<std::size_t>(index)); }

    /// Add a job; GPUs that do not exist are refused: false and nothing changed. A job already there is
    /// replaced.
    bool add(const Resident &job);
    void remove(JobId id);                     ///< unknown ids are fine
    void remove_from_node(JobId id, int node); ///< shrink
    /// What a job has done of its run, in isolated seconds, at a moment; `total_s` of how many, where that is
    /// known. Costs nothing: no index depends on it. Unknown ids are fine.
    void set_progress(JobId id, double done_s, std::int64_t at_s, double total_s = 0);
    const Resident *find(JobId id) const;
    std::size_t job_count() const { return jobs_.size(); }
    const std::unordered_map<JobId, Resident> &jobs() const { return jobs_; }

    /// Recount everything from the jobs and repair it; the number of GPUs whose incremental record was wrong,
    /// plus the jobs and nodes whose index entry was (0 in a sound program).
    int audit();

    /// Sharing jobs by shape, so that a decision looks at its candidates only.
    const GangIndex &gangs() const { return gangs_; }
    /// [i]: the nodes with exactly i idle GPUs.
    const std::vector<std::set<int>> &nodes_by_idle() const { return nodes_by_idle_; }

  private:
    friend struct ClusterProbe; ///< of the unit test, which must be able to break what audit() repairs

    bool valid(const std::vector<NodeGpus> &where) const;
    bool exists(int node, int gpu) const;
    void occupy(const Resident &job);
    void vacate(JobId id, const NodeGpus &at);
    std::set<JobId> neighbours(const std::vector<NodeGpus> &where) const;
    void reindex(const std::set<JobId> &ids);
    void reindex_idle(int node);
    GangClass class_of(const Resident &job) const;
    std::uint64_t free_bytes(const Resident &job) const;
    int audit_gpus();
    int audit_indexes();

    std::vector<Node> nodes_;
    std::unordered_map<JobId, Resident> jobs_;
    GangIndex gangs_;
    std::vector<std::set<int>> nodes_by_idle_;
    std::vector<int> idle_of_node_; ///< -1: not indexed yet
};

} // namespace jigsaw::core
#endif
