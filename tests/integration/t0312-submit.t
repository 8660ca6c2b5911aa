#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# job_submit/jigsaw: the request in AdminComment, refused expansion, bad values.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2 CLUSTER_EXTRA='JobSubmitPlugins=jigsaw'
CLUSTER_SCHED_PARAMS=permit_job_expansion,sched_min_interval=100000,bf_interval=1,sched_interval=2
_plugins job_submit_jigsaw.so
command -v "${CC%% *}" >/dev/null 2>&1 || CC=cc
start_cluster

comment() { slurm scontrol show job "$1" | sed -n 's/^ *AdminComment=//p' | sed 's/ *$//'; }
a=$(submit --spb --spb-mem=1G --gres=gpu:2)
is "AdminComment says what was asked" "$(comment "$a")" 'jigsaw:{"spb":"spb=auto spb-mem=1G"}'
running "$a"
slurm scontrol update JobId="$a" AdminComment="see ticket 7"
is "an administrator's text stands beside it" "$(comment "$a")" 'see ticket 7 jigsaw:{"spb":"spb=auto spb-mem=1G"}'
slurm scontrol update JobId="$a" AdminComment='jigsaw:{"spb":"spb=auto","gpu_s":3}'
is "a new segment replaces the old one only" "$(comment "$a")" 'see ticket 7 jigsaw:{"spb":"spb=auto","gpu_s":3}'
slurm scontrol update JobId="$a" AdminComment="see ticket 8"
is "and the text is replaced beside it" "$(comment "$a")" 'see ticket 8 jigsaw:{"spb":"spb=auto","gpu_s":3}'
b=$(submit --gres=gpu:1 --nodelist=n2)
is "a job without --spb has no segment" "$(comment "$b")" ""

e=$(slurm sbatch --parsable -o /dev/null --dependency=expand:"$a" -N1 --gres=gpu:1 --wrap true 2>&1)
like "growth of a sharing job is refused" "$e" 'jobs with --spb cannot grow; submit a new job of the size you need'
e=$(slurm sbatch --parsable -o /dev/null --spb --dependency=expand:"$b" -N1 --gres=gpu:1 --wrap true 2>&1)
like "and growth by one" "$e" 'cannot grow'
client=$CLUSTER_DIR/slurm_client
if $CC -o "$client" "$here/slurm_client.c" -lslurm 2>/dev/null; then
    nok "a bad value from another program is refused" slurm "$client" submit /dev/null _SLURM_SPANK_OPTION_jigsaw_spb=17
    ok "a good one is not" slurm "$client" submit /dev/null _SLURM_SPANK_OPTION_jigsaw_spb=4
fi
ok "restart" cluster_restart ctld
is "the comment stays" "$(comment "$a")" 'see ticket 8 jigsaw:{"spb":"spb=auto","gpu_s":3}'
ok "end" cancel "$a" "$b"
ok "no error in slurmctld's log" no_errors
done_testing
