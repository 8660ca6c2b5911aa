#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Nodes go down and come back, slurmd is killed; reservations.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2 CLUSTER_CRED_EXPIRE_S=5
start_cluster

a=$(submit --spb -N2 --gres=gpu:2)
running "$a"
b=$(submit --spb -N2 --gres=gpu:2)
ok "two share" share "$a" "$b" n1 n2
slurm scontrol update NodeName=n2 State=DOWN Reason=test
waiting() { job_is "$a" PENDING && job_is "$b" PENDING; }
ok "the node goes down: both are requeued" wait_for 20 waiting
is "nothing is charged" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:0 gpu:0"
slurm scontrol update NodeName=n2 State=RESUME 2>/dev/null # by itself already, perhaps (ReturnToService)
back() { job_is "$a" RUNNING && job_is "$b" RUNNING; }
ok "it comes back: both run" wait_for 60 back
ok "on the same GPUs" share "$a" "$b" n1 n2
is "counted once" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
cluster_kill 2
ok "slurmd is killed and begun again" cluster_begin 2
ok "both go on" share "$a" "$b" n1 n2
slurm scontrol reconfigure
is "after a reconfigure, too" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
ok "end" cancel "$a" "$b"

ok "a reservation of n1" slurm scontrol create reservation ReservationName=r1 Nodes=n1 StartTime=now Duration=60 Users=root
a=$(submit --spb --reservation=r1 --gres=gpu:2)
ok "a sharing job in it" running "$a"
b=$(submit --spb --reservation=r1 --gres=gpu:2)
ok "another joins in it" share "$a" "$b" n1
c=$(submit --spb --gres=gpu:2)
ok "one outside goes to the other node" running "$c"
is "there" "$(slurm squeue -h -j "$c" -o %N)" n2
d=$(submit --spb --gres=gpu:2)
ok "another outside joins that one" share "$c" "$d" n2
e=$(submit --spb --gres=gpu:1)
ok "a third outside waits although GPUs in the reservation are shared" pending "$e"
ok "restart" cluster_restart ctld
ok "inside as before" share "$a" "$b" n1
ok "outside as before" share "$c" "$d" n2
ok "end" cancel "$a" "$b" "$c" "$d" "$e"
slurm scontrol delete ReservationName=r1
ok "free" wait_for 20 used n1 gpu:0
ok "a reservation that comes" slurm scontrol create reservation ReservationName=r2 Nodes=ALL StartTime=now+3600 Duration=60 Users=root
a=$(submit --spb -N2 --gres=gpu:2 --time=10)
running "$a"
b=$(submit --spb -N2 --gres=gpu:2 --time=10)
ok "short jobs share before it" share "$a" "$b" n1 n2
c=$(submit --spb --gres=gpu:1 --time=1440)
ok "a long one waits" pending "$c"
ok "end" cancel "$a" "$b" "$c"
ok "no error in slurmctld's log" no_errors
done_testing
