// SPDX-License-Identifier: Apache-2.0
// The number of a job that was just submitted through libslurm, whose answer changed in 26.05.
#ifndef JIGSAW_TESTS_SUBMITTED_H
#define JIGSAW_TESTS_SUBMITTED_H

#include <slurm/slurm.h>

static inline uint32_t submitted_job(const submit_response_msg_t *answer)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
    return answer->step_id.job_id;
#else
    return answer->job_id;
#endif
}

#endif
