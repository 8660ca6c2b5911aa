// SPDX-License-Identifier: GPL-2.0-or-later
// What any site's own tool may be: a program linked with libslurm.
//   slurm_client jobs           prints the number of nodes and of jobs that the controller tells
//   slurm_client submit FILE [NAME=VALUE]...   submits a job with these strings in its spank_job_env, prints its id;
//                               FILE gets its output; the job asks for one GPU
#include "submitted.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int show(void)
{
    job_info_msg_t *jobs = NULL;
    node_info_msg_t *nodes = NULL;
    if (slurm_load_jobs(0, &jobs, SHOW_ALL) || slurm_load_node(0, &nodes, SHOW_ALL)) {
        slurm_perror("load");
        return 1;
    }
    printf("%u nodes %u jobs\n", nodes->record_count, jobs->record_count);
    return 0;
}

static int submit(int argc, char **argv)
{
    static char script[] = "#!/bin/sh\nexec sleep 600\n";
    static char gres[] = "gres:gpu:1", name[] = "t", folder[] = "/tmp";
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    job_desc_msg_t wish;
    submit_response_msg_t *answer = NULL;
    slurm_init_job_desc_msg(&wish);
    wish.name = name;
    wish.script = script;
    wish.std_out = argv[0];
    wish.work_dir = folder;
    wish.tres_per_node = gres;
    wish.min_nodes = wish.max_nodes = 1;
    wish.user_id = 0;
    wish.group_id = 0;
    wish.environment = environment;
    wish.env_size = 1;
    wish.spank_job_env = argv + 1;
    wish.spank_job_env_size = (uint32_t)(argc - 1);
    if (slurm_submit_batch_job(&wish, &answer)) {
        slurm_perror("submit");
        return 1;
    }
    printf("%u\n", submitted_job(answer));
    return 0;
}

int main(int argc, char **argv)
{
    slurm_init(NULL);
    if (argc == 2 && !strcmp(argv[1], "jobs"))
        return show();
    if (argc >= 3 && !strcmp(argv[1], "submit"))
        return submit(argc - 2, argv + 2);
    fprintf(stderr, "usage: slurm_client jobs | submit FILE [NAME=VALUE]...\n");
    return 2;
}
