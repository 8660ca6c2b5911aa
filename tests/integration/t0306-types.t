#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Several GPU types with Cores=: each type keeps its own count through sharing, restart and reconfigure.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=1 CLUSTER_SOCKETS=2 CLUSTER_GPUS=4 CLUSTER_NODE_GRES=gpu:a100:2,gpu:h100:2
CLUSTER_GRES_CONF='AutoDetect=off
NodeName=n1 Name=gpu Type=a100 File=@DIR@/dev/gpu[0-1] Cores=0-7
NodeName=n1 Name=gpu Type=h100 File=@DIR@/dev/gpu[2-3] Cores=8-15'
start_cluster

types() { slurm scontrol -d show node n1 | sed -n 's/^ *GresUsed=//p' | sed 's/(IDX:[^)]*)//g'; }
a=$(submit --spb --gres=gpu:a100:2)
running "$a"
b=$(submit --spb --gres=gpu:a100:2)
ok "two share the a100" share "$a" "$b" n1
is "their GPUs" "$(job_gpus "$a" n1)" 0-1
is "counted once, by type" "$(types)" gpu:a100:2,gpu:h100:0
c=$(submit --gres=gpu:h100:1)
ok "an exclusive job on an h100" running "$c"
is "counted" "$(types)" gpu:a100:2,gpu:h100:1
d=$(submit --spb --gres=gpu:1)
ok "an untyped sharing job" running "$d"
is "takes the free h100" "$(job_gpus "$d" n1)" 3
x=$(submit --gres=gpu:1)
ok "an exclusive untyped job waits" pending "$x"
e=$(submit --spb --gres=gpu:h100:1)
ok "a typed one joins the untyped one" share "$d" "$e" n1
is "counted once" "$(types)" gpu:a100:2,gpu:h100:2
unchanged() {
    is "$1: counts" "$(types)" gpu:a100:2,gpu:h100:2
    ok "$1: a100" share "$a" "$b" n1
    ok "$1: h100" share "$d" "$e" n1
    ok "$1: the exclusive job waits" pending "$x"
}
ok "restart" cluster_restart ctld
unchanged restart
ok "reconfigure" slurm scontrol reconfigure
unchanged reconfigure
y=$(submit --gres=gpu:h100:2)
ok "a start time is found" wait_for 10 eval '[ "$(job_field '"$y"' StartTime)" != Unknown ]'
ok "end of the first" cancel "$a"
is "the a100 are the second's" "$(types)" gpu:a100:2,gpu:h100:2
ok "end of the second" cancel "$b"
ok "then the exclusive job runs on one" running "$x"
is "it is an a100" "$(types)" gpu:a100:1,gpu:h100:2
ok "end" cancel "$c" "$d" "$e" "$x"
ok "then both h100" running "$y"
ok "end" cancel "$y"
is "all free" "$(types)" gpu:a100:0,gpu:h100:0
ok "no error in slurmctld's log" no_errors
done_testing
