#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What jigsawd writes into AdminComment places a job's next run, also after a restart; a job that misbehaves gets no company.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=1 CLUSTER_GPUS=2
CLUSTER_JIGSAW_YAML='memory_headroom: 0
gpu_memory:
  "*": 20G'
start_cluster

measured() { slurm scontrol update JobId="$1" AdminComment="jigsaw:{$2}"; }
a=$(submit --spb --spb-mem=8G --spb-profile=resnet --gres=gpu:2)
running "$a"
ok "jigsawd writes what it measured" measured "$a" '"mem":13958643712,"fwd_ms":10.5,"bwd_ms":21,"sync_ms":3'
ok "the job ends" cancel "$a"
ok "a restart" cluster_restart ctld
ok "the profile is in StateSaveLocation" grep -q '^0 resnet 10.5 21 3 13958643712 0 -$' "$CLUSTER_DIR/state/jigsaw_profiles"
a=$(submit --spb --spb-mem=8G --gres=gpu:2)
running "$a"
b=$(submit --spb --spb-profile=resnet --spb-mem=8G --gres=gpu:2)
ok "the next run is known to need 13 GiB, whatever it says" pending "$b"
like "and is told so" "$(slurm scontrol show job "$b")" '8.0 of 20.0 GiB taken on n1 gpu 0-1, 13.0 GiB asked'
c=$(submit --spb --spb-profile=other --spb-mem=8G --gres=gpu:2)
ok "one of another profile fits" share "$a" "$c" n1
ok "end" cancel "$a" "$b" "$c"

a=$(submit --spb --spb-mem=2G --gres=gpu:2)
running "$a"
measured "$a" '"mem":19327352832'
slurm scontrol reconfigure
b=$(submit --spb --spb-mem=4G --gres=gpu:2)
ok "a running job's measured peak counts" pending "$b"
measured "$a" '"mem":1073741824,"misbehaving":"keeps its turns"'
slurm scontrol reconfigure
settle
ok "a misbehaving job gets no company" job_is "$b" PENDING
measured "$a" '"mem":1073741824'
slurm scontrol reconfigure
ok "one that behaves does" share "$a" "$b" n1
ok "end" cancel "$a" "$b"

echo "jigsaw profiles 1
0 resnet what is this" >"$CLUSTER_DIR/state/jigsaw_profiles"
ok "a damaged file hurts nobody" cluster_restart ctld
a=$(submit --spb --spb-mem=1G --spb-profile=resnet --gres=gpu:2)
ok "jobs run" running "$a"
ok "end" cancel "$a"
ok "no error in slurmctld's log" no_errors
done_testing
