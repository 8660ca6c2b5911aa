// SPDX-License-Identifier: GPL-2.0-or-later
// The one door to slurmctld's internal headers, and everything that differs between Slurm releases. Include it last:
// those headers are C, have no guards for C++, and define macros over common words (error, list_*).
//
// Compiled and run on 22.05.8 and 24.11.5; the branches for 26.05 are written after its source, and the names they use
// were looked up in the binaries of 26.05.5.
#ifndef JIGSAW_SELECT_SHIM_HPP
#define JIGSAW_SELECT_SHIM_HPP

#include "plugin/config/config.hpp"
#include "plugin/config/options.hpp"
#include "plugin/core/cluster.hpp"
#include "plugin/core/placement.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include "config.h"
#undef _GNU_SOURCE         // slurmstepd_job.h defines it again
#define operator operator_ // extra_constraints.h (24.11+) has a field of that name
extern "C" {
#include "src/common/slurm_xlator.h"

#include "slurm/slurm.h"
#include "slurm/slurm_errno.h"
#include "src/common/bitstring.h"
#include "src/common/list.h"
#include "src/common/log.h"
#include "src/common/plugin.h"
#include "src/common/xmalloc.h"
#include "src/common/xstring.h"
#include "src/slurmctld/locks.h"
#include "src/slurmctld/slurmctld.h"
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
#include "src/interfaces/gres.h"
#include "src/interfaces/select.h"
#else
#include "src/common/gres.h"
#include "src/common/select.h"
#endif
}
#undef operator

#define JIGSAW_SLURM_2411 (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0))
#define JIGSAW_SLURM_2605 (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0))

// slurmctld's data. Every program linked with libslurm may load this plugin (22.05, 24.11) and has none of them: weak,
// or the loader refuses us and that program dies ("undefined symbol: node_record_count").
#pragma weak job_list
#pragma weak last_job_update
#pragma weak node_record_count
#pragma weak node_record_table_ptr
#pragma weak slurm_conf

namespace jigsaw::select {

/// List before 24.05, list_t * since; the iterator likewise.
using ListPtr = decltype(job_record_t::gres_list_req);
using ListIteratorPtr = decltype(list_iterator_create(std::declval<ListPtr>()));

/// Calls `visit(T *)` for each item. `visit` must not change the list.
template <class T, class Visit> void for_each(ListPtr list, Visit visit)
{
    if (!list)
        return;
    struct Destroy {
        ListIteratorPtr iterator;
        ~Destroy() { list_iterator_destroy(iterator); }
    } guard{list_iterator_create(list)};
    while (void *item = list_next(guard.iterator))
        visit(static_cast<T *>(item));
}

/// select_p_job_test's arguments, whose tail differs by release.
struct JobTest {
    job_record_t *job = nullptr;
    bitstr_t *nodes = nullptr; ///< in: allowed; out: chosen
    uint32_t min_nodes = 0, max_nodes = 0, req_nodes = 0;
    uint16_t mode = 0;
    ListPtr candidates = nullptr; ///< jobs that may be preempted
    ListPtr *victims = nullptr;   ///< out: those to be preempted
#if JIGSAW_SLURM_2411
    resv_exc_t *exclude = nullptr;
    will_run_data_t *will_run = nullptr;
#else
    bitstr_t *exclude = nullptr;
#endif
};

#if JIGSAW_SLURM_2411
#define JIGSAW_JOB_TEST_PARAMETERS                                                                                       \
    (job_record_t * job, bitstr_t * nodes, uint32_t min_nodes, uint32_t max_nodes, uint32_t req_nodes, uint16_t mode,    \
     list_t * candidates, list_t * *victims, resv_exc_t * exclude, will_run_data_t * will_run)
#define JIGSAW_JOB_TEST_FIELDS(t)                                                                                        \
    (t.job, t.nodes, t.min_nodes, t.max_nodes, t.req_nodes, t.mode, t.candidates, t.victims, t.exclude, t.will_run)
#define JIGSAW_JOB_TEST_PACK                                                                                             \
    jigsaw::select::JobTest{job, nodes, min_nodes, max_nodes, req_nodes, mode, candidates, victims, exclude, will_run}
#else
#define JIGSAW_JOB_TEST_PARAMETERS                                                                                       \
    (job_record_t * job, bitstr_t * nodes, uint32_t min_nodes, uint32_t max_nodes, uint32_t req_nodes, uint16_t mode,    \
     List candidates, List * victims, bitstr_t * exclude)
#define JIGSAW_JOB_TEST_FIELDS(t)                                                                                        \
    (t.job, t.nodes, t.min_nodes, t.max_nodes, t.req_nodes, t.mode, t.candidates, t.victims, t.exclude)
#define JIGSAW_JOB_TEST_PACK                                                                                             \
    jigsaw::select::JobTest{job, nodes, min_nodes, max_nodes, req_nodes, mode, candidates, victims, exclude}
#endif

/// The simulation of job ends (WILL_RUN, preemption) takes GPUs out of this list: gres_list_req up to 24.05
/// (job_resources.c, job_res_rm_job()), gres_list_alloc since. Both describe the same GPUs; the guard edits both.
inline std::vector<ListPtr> simulated_gres_lists(job_record_t *job) { return {job->gres_list_req, job->gres_list_alloc}; }

inline const char *qos_name(const job_record_t *job)
{
    return job->qos_ptr && job->qos_ptr->name ? job->qos_ptr->name : "";
}
inline const char *partition_name(const job_record_t *job)
{
    if (job->part_ptr && job->part_ptr->name)
        return job->part_ptr->name;
    return job->partition ? job->partition : "";
}
inline bool wants_whole_node(const job_record_t *job)
{
    if (!job->details)
        return false;
#ifdef WHOLE_TOPO // a set of flags since 24.11; --exclusive=topo, by the job or its partition, takes whole nodes, too
    return (job->details->whole_node & WHOLE_NODE_REQUIRED) || IS_JOB_WHOLE_TOPO(job);
#else
    return job->details->whole_node == WHOLE_NODE_REQUIRED; // --exclusive; 2 is --exclusive=user
#endif
}
inline node_record_t *node_at(int index)
{
    return index >= 0 && index < node_record_count ? node_record_table_ptr[index] : nullptr;
}

/// Up to 24.11 other programs load the plugin, too; since 25.05 slurmctld alone does, and running_in_slurmctld() is no
/// function any more.
inline bool in_slurmctld()
{
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
    return running_in_slurmctld();
#else
    return true;
#endif
}

/// Does slurmctld tell when it saves its state, at the latest as it ends? Since 25.05 it does not.
constexpr bool kStateSaveIsAnnounced = SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0);

/// First word of a bitmap; its size is the second. Hidden in bitstring.c since 23.11.
constexpr bitstr_t kBitmapMagic = 0x42434445;

/// Are the GPUs also offered as gres/shard or gres/mps, which keep their own books on them?
inline bool offered_otherwise(const gres_node_state_t *gpus)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
    return gpus->alt_gres != nullptr;
#else
    return gpus->alt_gres_ns != nullptr;
#endif
}

} // namespace jigsaw::select
#endif
