// SPDX-License-Identifier: GPL-2.0-or-later
// The stock select/cons_tres that does all the work: loaded once, asked by symbol name.
#ifndef JIGSAW_SELECT_INNER_HPP
#define JIGSAW_SELECT_INNER_HPP

#include "plugin/select/shim.hpp"

namespace jigsaw::select {

/// Load select/cons_tres. False: logged.
bool load_inner();
void unload_inner();
/// Its function; a missing one is fatal when it is first needed (slurmctld checks our own list of symbols at start).
void *inner_symbol(const char *name);

int inner_job_test(const JobTest &test);
int inner_nodeinfo_set(job_record_t *job);
int inner_job_fini(job_record_t *job);
int inner_job_resized(job_record_t *job, node_record_t *node);
int inner_job_expand(job_record_t *from, job_record_t *to);
int inner_job_suspend(job_record_t *job, bool indefinitely);
int inner_job_resume(job_record_t *job, bool indefinitely);
int inner_node_init();
int inner_reconfigure();
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
int inner_state_save(char *folder);
int inner_state_restore(char *folder);
#endif

} // namespace jigsaw::select
#endif
