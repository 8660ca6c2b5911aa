#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Kinds of jobs: arrays, het jobs, --exclusive, --exclusive=user, other ways to ask for GPUs, other users.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2
start_cluster

arr=$(submit --spb --array=1-4 --gres=gpu:2)
all_run() { [ "$(slurm squeue -h -r -j "$arr" -t R -o %i | wc -l)" = "$1" ]; }
ok "four tasks of an array run on two nodes" wait_for 30 all_run 4
is "two on each" "$(slurm squeue -h -r -j "$arr" -t R -o %N | sort | uniq -c | awk '{ print $2 ":" $1 }' | xargs)" "n1:2 n2:2"
is "GPUs counted once" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
x=$(submit --gres=gpu:1)
ok "an exclusive job waits" pending "$x"
ok "restart" cluster_restart ctld
ok "all tasks still run" all_run 4
is "counted once" "$(node_gpus_used n1)" gpu:2
slurm scancel "${arr}_1"
ok "one task ends" wait_for 20 all_run 3
is "its GPUs are the other's" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
slurm scancel "$arr" "$x"
ok "end" wait_for 30 eval '[ -z "$(slurm squeue -h -o %i)" ]'

het=$(slurm sbatch --parsable -o /dev/null --spb --gres=gpu:2 -N1 : --spb --gres=gpu:2 -N1 --wrap 'exec sleep 600')
ok "a het job runs" wait_for 30 job_is "$het" RUNNING
a=$(submit --spb -N2 --gres=gpu:2)
ok "a job shares with both components" running "$a"
is "counted once" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
ok "restart" cluster_restart ctld
is "still" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
ok "the het job goes" cancel "$het"
is "the GPUs are the other's" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
ok "end" cancel "$a"

a=$(submit --spb --exclusive --gres=gpu:1 -N1 --nodelist=n1)
ok "--exclusive runs" running "$a"
b=$(submit --spb --gres=gpu:1 --nodelist=n1)
ok "nobody joins it" pending "$b"
ok "end" cancel "$a" "$b"
a=$(submit --spb --gres=gpu:2 --nodelist=n1)
running "$a"
b=$(submit --spb --exclusive --gres=gpu:1 --nodelist=n1)
ok "--exclusive joins nobody" pending "$b"
ok "end" cancel "$a" "$b"

a=$(submit --spb --exclusive=user --gres=gpu:2 --nodelist=n1)
ok "--exclusive=user runs" running "$a"
b=$(submit --spb --exclusive=user --gres=gpu:2 --nodelist=n1)
ok "the same user shares" share "$a" "$b" n1
ok "end" cancel "$a" "$b"

a=$(submit --spb --gpus=2 --nodelist=n1 -N1)
running "$a"
b=$(submit --spb --gpus-per-node=2 --nodelist=n1 -N1)
ok "--gpus and --gpus-per-node share" share "$a" "$b" n1
ok "end" cancel "$a" "$b"
a=$(submit --spb -n2 --ntasks-per-node=2 --gpus-per-task=1 --nodelist=n1 -N1)
ok "--gpus-per-task" running "$a"
b=$(submit --spb -n2 --ntasks-per-node=2 --gpus-per-task=1 --nodelist=n1 -N1)
ok "twice on the same GPUs" share "$a" "$b" n1
is "both" "$(job_gpus "$b" n1)" 0-1
ok "end" cancel "$a" "$b"
a=$(submit --spb -N1 -n1 -c16 --gres=gpu:1 --nodelist=n1)
running "$a"
b=$(submit --spb -N1 -n1 -c16 --gres=gpu:2 --nodelist=n1)
ok "no cores left: the second waits" pending "$b"
ok "and is told what to change" wait_for 20 has_reason "$b" 'JigSaw: GPUs n1:.* may be shared, but cores or memory .*--cpus-per-task'
ok "end" cancel "$a" "$b"

a=$(submit_as nobody --spb --gres=gpu:2 --nodelist=n1)
ok "a job of another user" running "$a"
b=$(submit --spb --gres=gpu:2 --nodelist=n1)
ok "by default only its own user's jobs join" pending "$b"
ok "the reason says so" wait_for 20 has_reason "$b" "JigSaw: .*job $a is another user's"
c=$(submit_as nobody --spb --gres=gpu:2 --nodelist=n1)
ok "that user's next one does" share "$a" "$c" n1
ok "end" cancel "$a" "$b" "$c"
ok "all free" wait_for 20 used n1 gpu:0
ok "no error in slurmctld's log" no_errors
done_testing
