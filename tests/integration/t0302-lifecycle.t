#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Requeue, suspend and resume, cancel while suspended, shrink, normal end.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2 CLUSTER_CRED_EXPIRE_S=5
start_cluster

pair() { a=$(submit --spb -N2 --gres=gpu:2 "$@"); running "$a"; b=$(submit --spb -N2 --gres=gpu:2 "$@"); share "$a" "$b" n1 n2; }
ok "two share" pair
ok "requeue one" slurm scontrol requeue "$b"
requeued() { [ "$(job_field "$b" Restarts)" = 1 ] && job_is "$b" RUNNING; }
ok "it comes back" wait_for 60 requeued
ok "to the same GPUs" share "$a" "$b" n1 n2
is "counted once" "$(node_gpus_used n1)" gpu:2

slurm scontrol suspend "$b"
ok "suspended" wait_for 10 job_is "$b" SUSPENDED
is "the GPUs stay charged" "$(node_gpus_used n1)" gpu:2
x=$(submit --gres=gpu:1)
ok "an exclusive job waits" pending "$x"
slurm scontrol resume "$b"
ok "resumed, still sharing" share "$a" "$b" n1 n2
slurm scontrol suspend "$a"
ok "the other is suspended" wait_for 10 job_is "$a" SUSPENDED
ok "and cancelled so" cancel "$a"
is "one resident left" "$(node_gpus_used n1)" gpu:2
ok "the exclusive job still waits" pending "$x"
ok "end" cancel "$b" "$x"
ok "free" wait_for 30 used n1 gpu:0

ok "two share again" pair
ok "one shrinks to its first node" slurm scontrol update JobId="$a" NumNodes=1
wait_for 10 test "$(job_field "$a" NumNodes)" = 1
is "n2 is still the other's" "$(node_gpus_used n2)" gpu:2
is "n1 is both's" "$(job_gpus "$a" n1) $(node_gpus_used n1)" "0-1 gpu:2"
x=$(submit --gres=gpu:2 --nodelist=n2)
ok "an exclusive job for n2 waits" pending "$x"
c=$(submit --spb --gres=gpu:2 --nodelist=n2)
ok "a sharing one takes the place that was left" share "$b" "$c" n2
ok "restart after the shrink" cluster_restart ctld
is "nothing changed" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
ok "end" cancel "$a" "$b" "$c"
ok "then it runs" running "$x"
cancel "$x"
a=$(submit --spb -N2 --gres=gpu:2)
running "$a"
ok "a sole resident shrinks" slurm scontrol update JobId="$a" NumNodes=1
ok "its node is free" wait_for 20 used n2 gpu:0
ok "end" cancel "$a"
SUBMIT_WRAP=true
a=$(submit --spb --gres=gpu:2)
b=$(submit --spb --gres=gpu:2)
ok "jobs that end by themselves" wait_for 30 job_over "$a"
ok "leave nothing" wait_for 30 job_over "$b"
ok "n1" wait_for 10 used n1 gpu:0
ok "n2" wait_for 10 used n2 gpu:0
ok "no error in slurmctld's log" no_errors
done_testing
