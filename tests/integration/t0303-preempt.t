#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Preemption by REQUEUE: all residents of a GPU go together or none does; nobody goes while a GPU can be joined.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=1 CLUSTER_GPUS=2 CLUSTER_CRED_EXPIRE_S=5
CLUSTER_EXTRA='PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PreemptExemptTime=0'
CLUSTER_PARTITIONS='PartitionName=low Nodes=n1 PriorityTier=1 Default=YES MaxTime=INFINITE State=UP
PartitionName=kept Nodes=n1 PriorityTier=1 MaxTime=INFINITE State=UP PreemptMode=OFF
PartitionName=high Nodes=n1 PriorityTier=10 MaxTime=INFINITE State=UP'
start_cluster

restarts() { [ "$(job_field "$1" Restarts)" = "$2" ]; }
a=$(submit --spb --gres=gpu:2)
ok "low job" running "$a"
b=$(submit --spb --gres=gpu:2)
ok "two low jobs share" share "$a" "$b" n1
x=$(submit -p high --gres=gpu:2)
ok "an exclusive high job starts" running "$x"
ok "both were requeued for it" test "$(job_field "$a" Restarts)$(job_field "$b" Restarts)" = 11
is "its GPUs" "$(job_gpus "$x" n1)" 0-1
ok "end of the high job" cancel "$x"
back() { job_is "$a" RUNNING && job_is "$b" RUNNING; }
ok "both come back" wait_for 60 back
ok "and share" share "$a" "$b" n1
ok "end" cancel "$a" "$b"

a=$(submit --spb --gres=gpu:2)
running "$a"
b=$(submit --spb -p kept --gres=gpu:2)
ok "one of the two may not be preempted" share "$a" "$b" n1
x=$(submit -p high --gres=gpu:1)
ok "the exclusive high job waits" pending "$x"
ok "the other resident was not lost for nothing" restarts "$a" 0
ok "it runs" job_is "$a" RUNNING
s=$(submit -p high --spb --gres=gpu:2)
ok "a sharing high job takes the place of the low one" running "$s"
ok "which was requeued" restarts "$a" 1
ok "the protected one stays" job_is "$b" RUNNING
ok "they share" share "$s" "$b" n1
ok "the exclusive one still waits" job_is "$x" PENDING
ok "end" cancel "$a" "$b" "$s" "$x"

a=$(submit --spb --gres=gpu:2)
ok "one low job" running "$a"
s=$(submit -p high --spb --gres=gpu:2)
ok "a sharing high job joins it" share "$a" "$s" n1
ok "without a victim" restarts "$a" 0
t=$(submit -p high --spb --gres=gpu:1)
ok "a second one needs one victim" running "$t"
ok "it is the low job" restarts "$a" 1
ok "the high ones share" job_is "$s" RUNNING
ok "end" cancel "$a" "$s" "$t"
ok "all free" wait_for 20 used n1 gpu:0
ok "no error in slurmctld's log" no_errors
done_testing
