// SPDX-License-Identifier: GPL-2.0-or-later
// Submits a job as any user of libslurm can: with a spank_job_env of its own making, which no SPANK plugin has seen.
//     forge FOLDER NAME=VALUE...
// Prints the job's id. The job asks for one GPU and sleeps.
#include "submitted.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char *environment[] = {"PATH=/usr/bin:/bin"};
    job_desc_msg_t job;
    submit_response_msg_t *response = NULL;
    if (argc < 3)
        return 2;
    slurm_init(NULL);
    slurm_init_job_desc_msg(&job);
    job.name = "forged";
    job.script = "#!/bin/sh\nexec sleep 600\n";
    job.environment = environment;
    job.env_size = 1;
    job.min_nodes = job.max_nodes = job.num_tasks = 1;
    job.tres_per_node = "gres:gpu:1";
    job.work_dir = argv[1];
    job.std_in = job.std_out = job.std_err = "/dev/null";
    job.user_id = getuid();
    job.group_id = getgid();
    job.spank_job_env = argv + 2;
    job.spank_job_env_size = (uint32_t) (argc - 2);
    if (slurm_submit_batch_job(&job, &response) != SLURM_SUCCESS) {
        slurm_perror("forge");
        return 1;
    }
    printf("%u\n", (unsigned) submitted_job(response));
    return 0;
}
