#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Start times that backfill finds while jobs share: an exclusive job starts when the last resident ends, a sharing one when
# the first whose place it can take does. And no count underflows in the simulation.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=1 CLUSTER_GPUS=2
CLUSTER_JIGSAW_YAML='memory_headroom: 0
gpu_memory:
  "*": 20G'
start_cluster

starts_at() { [ "$(job_field "$1" StartTime)" = "$2" ]; }
a=$(submit --spb --spb-mem=4G --gres=gpu:2 --time=20)
running "$a"
b=$(submit --spb --spb-mem=4G --gres=gpu:2 --time=90)
ok "two share" share "$a" "$b" n1
a_end=$(job_field "$a" EndTime) b_end=$(job_field "$b" EndTime)

x=$(submit --gres=gpu:1 --time=10)
ok "an exclusive job starts when both have ended" wait_for 20 starts_at "$x" "$b_end"
ok "end" cancel "$x"
d=$(submit --spb --spb-mem=4G --gres=gpu:2 --time=10)
ok "a sharing job starts when the first ends" wait_for 20 starts_at "$d" "$a_end"
ok "end" cancel "$d"
d=$(submit --spb --spb-mem=18G --gres=gpu:2 --time=10)
ok "one whose memory fits beside neither starts after the last" wait_for 20 starts_at "$d" "$b_end"
ok "end" cancel "$d"
test_only() { slurm sbatch --test-only -o /dev/null "$@" --wrap true 2>&1; }
like "sbatch --test-only agrees: exclusive" "$(test_only --gres=gpu:1 --time=10)" "to start at $b_end"
like "sbatch --test-only agrees: sharing" "$(test_only --spb --spb-mem=4G --gres=gpu:2 --time=10)" "to start at $a_end"
ok "restart" cluster_restart ctld
x=$(submit --gres=gpu:1 --time=10)
ok "the same after a restart" wait_for 30 starts_at "$x" "$b_end"
ok "the GPUs are still both's" share "$a" "$b" n1
is "counted once" "$(node_gpus_used n1)" gpu:2
ok "end" cancel "$x"

# A small job may pass a large one that waits, and the large one is not delayed.
x=$(submit --gres=gpu:2 --time=10)
ok "a large exclusive job waits" wait_for 20 starts_at "$x" "$b_end"
c=$(submit --time=30 -n1)
ok "a job without GPU passes it" running "$c"
ok "its start stays" starts_at "$x" "$b_end"
ok "one resident leaves" cancel "$a"
d=$(submit --spb --spb-mem=4G --gres=gpu:2 --time=30)
ok "a sharing job that ends before joins meanwhile" share "$b" "$d" n1
ok "the exclusive one is not delayed" starts_at "$x" "$b_end"
late=$(submit --spb --spb-mem=1G --gres=gpu:1 --time=30)
ok "a third waits: full" pending "$late"
ok "end" cancel "$d" "$late" "$b" "$c"
ok "the exclusive one runs" running "$x"
ok "end" cancel "$x"
ok "no error and no underflow in slurmctld's log" no_errors
done_testing
