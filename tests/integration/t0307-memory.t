#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# GPU memory decides who may join; a job that waits is told which GPU, which number and what to change. Host memory stays
# exclusive (CR_Core_Memory).
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=1 CLUSTER_GPUS=2 CLUSTER_SELECT_PARAMS=CR_Core_Memory CLUSTER_MEMORY_MB=4000
CLUSTER_JIGSAW_YAML='memory_headroom: 0.1
context_memory: 1G
gpu_memory:
  "*": 20G'
start_cluster

a=$(submit --spb --spb-mem=10G --gres=gpu:2 --mem=1000)
ok "a job that says what it needs" running "$a"
b=$(submit --spb --spb-mem=12G --gres=gpu:2 --mem=1000)
ok "two that are too large together do not share" pending "$b"
ok "squeue says which GPU, number and remedy" wait_for 20 has_reason "$b" \
    'JigSaw: GPU memory 13.0 of 20.0 GiB taken on n1 gpu 0-1, 13.0 GiB asked: lower --spb-mem'
like "scontrol, too" "$(slurm scontrol show job "$b")" 'Reason=JigSaw:_GPU_memory_13.0_of_20.0_GiB'
like "and system_comment" "$(slurm scontrol show job "$b")" 'SystemComment=jigsaw:.waits: GPU memory 13.0 of 20.0 GiB'
c=$(submit --spb --gres=gpu:2 --mem=1000)
ok "one that states nothing waits" pending "$c"
like "and is told" "$(slurm scontrol show job "$c")" 'SystemComment=jigsaw:.waits: .*add --spb-mem'
d=$(submit --spb --spb-mem=5G --gres=gpu:2 --mem=1000)
ok "one that fits joins past them" share "$a" "$d" n1
e=$(submit --spb --spb-mem=1G --gres=gpu:1 --mem=1000)
ok "a third finds the GPUs full" pending "$e"
ok "restart" cluster_restart ctld
ok "the text is written again" wait_for 30 has_reason "$b" 'JigSaw: '
ok "end" cancel "$a" "$d" "$e"
ok "the next one runs" running "$b"
nok "its reason is gone" has_reason "$b" JigSaw
ok "the waiting text, too" test -z "$(slurm scontrol show job "$b" | grep 'waits:')"
ok "end" cancel "$b" "$c"
a=$(submit --spb --spb-mem=2G --gres=gpu:2 --mem=3000)
running "$a"
b=$(submit --spb --spb-mem=2G --gres=gpu:2 --mem=3000)
ok "host memory is not shared: the second waits" pending "$b"
c=$(submit --spb --spb-mem=2G --gres=gpu:2 --mem=900)
ok "one that asks for less joins" share "$a" "$c" n1
ok "end" cancel "$a" "$c"
ok "the second runs" running "$b"
ok "end" cancel "$b"
ok "no error in slurmctld's log" no_errors
done_testing
