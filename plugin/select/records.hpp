// SPDX-License-Identifier: GPL-2.0-or-later
// Reading GPUs out of Slurm's records: what a node has, what a job holds, what a job asks for. Nothing here writes.
// Callers hold slurmctld's job and node locks, as select plugins always do.
#ifndef JIGSAW_SELECT_RECORDS_HPP
#define JIGSAW_SELECT_RECORDS_HPP

#include "plugin/select/shim.hpp"

namespace jigsaw::select {

/// Slurm's record of a node's GPUs. nullptr when there is none, or when its GPUs are not ours to share: counted without
/// device files, not consumed, or also offered as gres/shard or gres/mps (those keep their own books on the same GPUs).
gres_node_state_t *node_gpus(int node);

/// One record of GPUs of a job on a node. A job has one per GPU *type*; an untyped request on a typed node makes several.
struct GpuEntry {
    bitstr_t *bits;
    uint64_t *count; ///< beside the bits; may be nullptr
    uint32_t type_id;
};
std::vector<GpuEntry> gpu_entries(job_record_t *job, ListPtr list, int node);

/// GPUs that cons_tres has chosen on a node for a job that is about to start.
std::vector<int> gpus_chosen(const job_record_t *job, int node);

/// Everything a job holds, ascending by node; GPUs that a node does not have (any more) are left out.
std::vector<core::NodeGpus> gpus_held(job_record_t *job);

/// Nodes of a running job's allocation.
std::vector<int> nodes_held(const job_record_t *job);
std::vector<int> nodes_in(const bitstr_t *bitmap);

/// What a pending job asks for.
struct GpuWish {
    bool any = false;                ///< asks for GPUs at all
    std::uint32_t gpus_per_node = 1; ///< least number on each node
    std::string type;                ///< "": any, or several
};
GpuWish gpu_wish(const job_record_t *job);

/// The strings of spank_job_env.
std::vector<std::string> spank_entries(const job_record_t *job);

/// "n1:0-1 n2:0": for logs and comments.
std::string format_gpus(const std::vector<core::NodeGpus> &where);

} // namespace jigsaw::select
#endif
