// SPDX-License-Identifier: GPL-2.0-or-later
// What slurmctld calls and we override; everything else is in forward.cpp.
#include "plugin/select/comments.hpp"
#include "plugin/select/controller.hpp"
#include "plugin/select/inner.hpp"

#define JIGSAW_ENTRY extern "C" __attribute__((visibility("default")))

using jigsaw::select::Controller;

JIGSAW_ENTRY int init(void)
{
    return jigsaw::select::load_inner() ? SLURM_SUCCESS : SLURM_ERROR;
}

JIGSAW_ENTRY int fini(void)
{
    if (jigsaw::select::in_slurmctld())
        jigsaw::select::Reasons::instance().stop();
    jigsaw::select::unload_inner();
    return SLURM_SUCCESS;
}

JIGSAW_ENTRY int select_p_node_init(void)
{
    return Controller::instance().node_init();
}

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
JIGSAW_ENTRY int select_p_state_save(char *folder)
{
    Controller::instance().save_profiles();
    return jigsaw::select::inner_state_save(folder);
}

JIGSAW_ENTRY int select_p_state_restore(char *folder)
{
    return jigsaw::select::inner_state_restore(folder);
}
#endif

JIGSAW_ENTRY int select_p_reconfigure(void)
{
    return Controller::instance().reconfigure();
}

JIGSAW_ENTRY int select_p_job_test JIGSAW_JOB_TEST_PARAMETERS
{
    return Controller::instance().job_test(JIGSAW_JOB_TEST_PACK);
}

JIGSAW_ENTRY int select_p_select_nodeinfo_set(job_record_t *job)
{
    return Controller::instance().nodeinfo_set(job);
}

JIGSAW_ENTRY int select_p_job_fini(job_record_t *job)
{
    return Controller::instance().job_fini(job);
}

JIGSAW_ENTRY int select_p_job_resized(job_record_t *job, node_record_t *node)
{
    return Controller::instance().job_resized(job, node);
}

JIGSAW_ENTRY int select_p_job_expand(job_record_t *from, job_record_t *to)
{
    return Controller::instance().job_expand(from, to);
}

JIGSAW_ENTRY int select_p_job_suspend(job_record_t *job, bool indefinitely)
{
    return Controller::instance().job_suspend(job, indefinitely);
}

JIGSAW_ENTRY int select_p_job_resume(job_record_t *job, bool indefinitely)
{
    return Controller::instance().job_resume(job, indefinitely);
}
