// SPDX-License-Identifier: Apache-2.0
// Who sits on which GPU. The one place where occupancy is changed: kept incrementally, so that a decision costs what the
// job and its candidates cost. No Slurm, no clock. One thread at a time (in slurmctld: under its locks).
#ifndef JIGSAW_CORE_CLUSTER_HPP
#define JIGSAW_CORE_CLUSTER_HPP

#include "plugin/core/job.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace jigsaw::core {

struct Gpu {
    std::string type;               ///< "" when the site gives none
    std::uint64_t memory_bytes = 0; ///< 0: not configured: memory is not checked
    int core = -1;                  ///< test hosts: the CPU core that stands for it
    std::vector<JobId> residents;   ///< in order of arrival
};

struct Node {
    std::string name;
    std::vector<Gpu> gpus;
};

/// GPU indices on one node.
struct NodeGpus {
    int node = -1;
    std::vector<int> gpus; ///< ascending
};

/// A job that holds GPUs.
struct Resident {
    JobId id = 0;
    std::uint32_t uid = 0;
    std::string account, partition, qos;
    SpbRequest spb;
    Profile profile;
    std::int64_t start_s = 0;      ///< wall clock of the start
    std::int64_t time_limit_s = 0; ///< 0: none
    std::vector<NodeGpus> where;   ///< ascending by node
};

class Cluster {
  public:
    /// (Re)declare the node at `index`; residents on GPUs that remain are kept.
    void set_node(int index, const std::string &name, const std::vector<Gpu> &gpus);
    int node_count() const { return static_cast<int>(nodes_.size()); }
    const Node &node(int index) const { return nodes_.at(static_cast<std::size_t>(index)); }

    /// Add a job; GPUs that do not exist are refused: false and nothing changed. A job already there is replaced.
    bool add(const Resident &job);
    void remove(JobId id);                         ///< unknown ids are fine
    void remove_from_node(JobId id, int node);     ///< shrink
    const Resident *find(JobId id) const;
    std::size_t job_count() const { return jobs_.size(); }
    const std::unordered_map<JobId, Resident> &jobs() const { return jobs_; }

    /// Recount everything from the jobs; the number of GPUs whose incremental record was wrong (0 in a sound program).
    int audit();

  private:
    std::vector<Node> nodes_;
    std::unordered_map<JobId, Resident> jobs_;
};

} // namespace jigsaw::core
#endif
