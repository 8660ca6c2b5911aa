#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two jobs with --spb share the GPUs of two nodes; a job without has its GPUs alone; K jobs per GPU and no more.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2
start_cluster

a=$(submit --spb -N2 --gres=gpu:2)
ok "the first job runs" running "$a"
like "and says that it may share" "$(slurm scontrol show job "$a")" 'SystemComment=jigsaw:.may share GPUs, alone now; holds n1:0-1 n2:0-1'
b=$(submit --spb -N2 --gres=gpu:2)
ok "the second shares its GPUs on both nodes" share "$a" "$b" n1 n2
is "these are" "$(job_gpus "$b" n2)" 0-1
is "a node counts a shared GPU once" "$(node_gpus_used n1)" gpu:2
like "each says with whom it shares" "$(slurm scontrol show job "$a")" "SystemComment=jigsaw:.shares GPUs with job $b"
like "the other, too" "$(slurm scontrol show job "$b")" "SystemComment=jigsaw:.shares GPUs with job $a"
ok "the log names the start once" test "$(ctld_log "jigsaw: job $b starts on n1:0-1 n2:0-1, shared with job $a" | wc -l)" = 1

x=$(submit --gres=gpu:1)
ok "a job without --spb waits" pending "$x"
c=$(submit --spb --gres=gpu:1)
ok "a third sharing job waits: two jobs per GPU" pending "$c"
ok "cancelling the first frees no GPU" cancel "$a"
is "they are the second's" "$(node_gpus_used n1)" gpu:2
ok "the third joins" running "$c"
ok "the job without --spb still waits" pending "$x"
like "the one that stayed knows its new neighbour" "$(slurm scontrol show job "$b")" "SystemComment=jigsaw:.shares GPUs with job $c"
ok "cancel both" cancel "$b" "$c"
ok "then the job without --spb runs" running "$x"
d=$(submit --spb --gres=gpu:2 --nodelist="$(slurm squeue -h -j "$x" -o %N)")
ok "a sharing job does not join it" pending "$d"
ok "end" cancel "$x"
ok "the sharing job runs when it has gone" running "$d"

e=$(submit --spb --gres=gpu:2 --nodelist="$(slurm squeue -h -j "$d" -o %N)")
ok "--nodelist: it joins on the node it names" share "$d" "$e" "$(slurm squeue -h -j "$d" -o %N)"
ok "end" cancel "$d" "$e"
f=$(submit --gres=gpu:1 -N1 --nodelist=n1)
g=$(submit --spb --gres=gpu:1 -N1 --nodelist=n1)
h=$(submit --spb --gres=gpu:1 -N1 --nodelist=n1)
ok "on a node with an exclusive and a shared GPU" running "$f"
ok "two jobs share the other GPU" share "$g" "$h" n1
nok "which is not the exclusive one" test "$(job_gpus "$f" n1)" = "$(job_gpus "$g" n1)"
ok "everything is free at the end" cancel "$f" "$g" "$h"
ok "n1" wait_for 10 used n1 gpu:0
ok "n2" wait_for 10 used n2 gpu:0
ok "no error in slurmctld's log" no_errors
done_testing
