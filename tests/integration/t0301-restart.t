#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# slurmctld restarts, is reconfigured and is killed while jobs share.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2
start_cluster

a=$(submit --spb -N2 --gres=gpu:2)
ok "first" running "$a"
b=$(submit --spb -N2 --gres=gpu:2)
ok "the two share" share "$a" "$b" n1 n2

unchanged() { # what happened
    ok "$1: both run on the same GPUs" share "$a" "$b" n1 n2
    is "$1: GPUs counted once" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
}
waits() {
    local x y
    x=$(submit --gres=gpu:1)
    y=$(submit --spb --gres=gpu:1)
    ok "$1: an exclusive job still waits" pending "$x"
    ok "$1: a third sharing job, too" job_is "$y" PENDING
    cancel "$x" "$y"
}
ok "restart" cluster_restart ctld
unchanged restart
waits restart
ok "reconfigure" slurm scontrol reconfigure
unchanged reconfigure
waits reconfigure
ok "reconfigure again" slurm scontrol reconfigure
unchanged "second reconfigure"
cluster_kill ctld
ok "killed and begun again" cluster_begin ctld
slurm scancel -t PENDING -u root # a cancellation that was not yet saved
unchanged "kill -9"
ok "a partition is changed" slurm scontrol update PartitionName=main MaxTime=10-0
unchanged "changed partition"
slurm scontrol suspend "$b"
ok "one is suspended" wait_for 10 job_is "$b" SUSPENDED
ok "restart meanwhile" cluster_restart ctld
is "still counted once" "$(node_gpus_used n1)" gpu:2
slurm scontrol resume "$b"
unchanged "restart while suspended"
ok "slurmd too" cluster_restart 1
ok "n1 is back" wait_for 20 eval 'slurm sinfo -h -n n1 -o %t | grep -q "mix\|alloc"'
unchanged "restart of slurmd"
ok "cancel one" cancel "$a"
ok "restart with one" cluster_restart ctld
is "its GPUs" "$(job_gpus "$b" n1) $(node_gpus_used n1)" "0-1 gpu:2"
c=$(submit --spb -N2 --gres=gpu:2)
ok "and another joins" share "$b" "$c" n1 n2
ok "end" cancel "$b" "$c"
ok "all is free" wait_for 10 used n1 gpu:0
ok "no error in slurmctld's log" no_errors
done_testing
