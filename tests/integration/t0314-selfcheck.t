#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A plugin built for another Slurm (select_mutant) says so once and leaves everything to cons_tres.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2
mutant=${top_builddir:-.}/plugin/select/.libs/select_mutant.so
[ -f "$mutant" ] || skip_all "select_mutant.so is not built (set top_builddir)"
dir=${JIGSAW_PLUGINS:-$(cluster_slurm_plugins)}
JIGSAW_PLUGINS=$(mktemp -d)
trap 'rm -rf "$JIGSAW_PLUGINS"' EXIT
cp "$mutant" "$JIGSAW_PLUGINS/select_jigsaw.so"
[ ! -f "$dir/spank_jigsaw.so" ] || cp "$dir/spank_jigsaw.so" "$JIGSAW_PLUGINS"
# Where ours are installed in Slurm's own folder, the second name would be loaded, too; it does no harm.
start_cluster

a=$(submit --spb -N2 --gres=gpu:2)
ok "a job runs" running "$a"
is "one line says what is wrong" "$(ctld_log 'error: jigsaw: self-check: a job record is not one: .*every decision is cons_tres' | wc -l)" 1
b=$(submit --spb --gres=gpu:1)
ok "nothing is shared" pending "$b"
ok "end" cancel "$a"
ok "the next one runs" running "$b"
ok "restart" cluster_restart ctld
ok "it goes on" job_is "$b" RUNNING
is "counted as ever" "$(node_gpus_used "$(slurm squeue -h -j "$b" -o %N)")" gpu:1
c=$(submit -N2 --gres=gpu:1)
ok "jobs run beside each other" running "$c"
ok "reconfigure" slurm scontrol reconfigure
ok "slurmctld lives" cluster_pid ctld
ok "end" cancel "$b" "$c"
ALLOW_ERRORS+='|jigsaw: self-check'
ok "no other error in slurmctld's log" no_errors
rm -rf "$JIGSAW_PLUGINS"
done_testing
