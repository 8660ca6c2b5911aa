#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Switching SelectType on and off on a cluster with jobs: what docs/admin-switch.md says.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2 TEST_STOCK=1
start_cluster
dir=${JIGSAW_PLUGINS:-$(cluster_slurm_plugins)}
[ -f "$dir/select_jigsaw.so" ] || skip_all "select_jigsaw.so is not in $dir"

switch() { # SelectType
    CLUSTER_SELECT=$1
    cluster_configure
    cluster_end 1 && cluster_end 2 && cluster_restart ctld && cluster_begin 1 && cluster_begin 2 || return 1
    wait_for 30 eval '[ "$(slurm sinfo -h -t idle,mix,alloc -o %D | awk "{ n += \$1 } END { print n }")" = 2 ]'
}
a=$(submit --gres=gpu:1 --nodelist=n1)
e=$(submit --spb --gres=gpu:1 --nodelist=n1)
ok "jobs under select/cons_tres" running "$a"
ok "with --spb, too, as if it were not there" running "$e"
is "each alone" "$(job_gpus "$a" n1) $(job_gpus "$e" n1)" "0 1"

ok "switch to select/jigsaw" switch select/jigsaw
ok "the jobs go on" job_is "$a" RUNNING
is "with their GPUs" "$(job_gpus "$a" n1) $(job_gpus "$e" n1) $(node_gpus_used n1)" "0 1 gpu:2"
b=$(submit --spb --gres=gpu:1 --nodelist=n1)
ok "a job joins the one with --spb that started before" share "$e" "$b" n1
c=$(submit --spb --gres=gpu:2 --nodelist=n2)
running "$c"
d=$(submit --spb --gres=gpu:2 --nodelist=n2)
ok "two more share" share "$c" "$d" n2

# Off again while jobs share: the advice is to drain first; this is what happens when it is not followed.
ok "switch back to select/cons_tres" switch select/cons_tres
for job in "$a" "$b" "$c" "$d" "$e"; do ok "job $job goes on" job_is "$job" RUNNING; done
is "it keeps its GPUs" "$(job_gpus "$c" n2) $(job_gpus "$d" n2)" "0-1 0-1"
x=$(submit --gres=gpu:1 --nodelist=n2)
ok "no new job gets a GPU in use" pending "$x"
say "cons_tres says: $(ctld_log 'overallocated' | tail -n 1)"
ok "the switch there and back" switch select/jigsaw
is "sets everything right" "$(node_gpus_used n1) $(node_gpus_used n2)" "gpu:2 gpu:2"
ok "both share as before" share "$c" "$d" n2
ok "end of one" cancel "$c"
ok "the exclusive job still waits" pending "$x"
ok "end of the other" cancel "$d"
ok "then it runs" running "$x"
ok "end" cancel "$a" "$b" "$e" "$x"

# The way that docs/admin-switch.md advises.
a=$(submit --spb --gres=gpu:2 --nodelist=n1)
running "$a"
b=$(submit --spb --gres=gpu:2 --nodelist=n1)
ok "two share" share "$a" "$b" n1
echo 'sharing: off' >"$CLUSTER_DIR/etc/jigsaw.yaml"
CLUSTER_JIGSAW_YAML='sharing: off'
ok "sharing: off, reconfigure" slurm scontrol reconfigure
c=$(submit --spb --gres=gpu:2 --nodelist=n1)
ok "they go on, nobody joins" pending "$c"
ok "they end" cancel "$a" "$b"
ok "then the next has the GPUs alone" running "$c"
before=$(wc -l <"$(cluster_log ctld)")
ok "switch off when nobody shares" switch select/cons_tres
ok "the job goes on" job_is "$c" RUNNING
is "without an error" "$(tail -n "+$before" "$(cluster_log ctld)" | grep -E 'error:|underflow|overallocated' | grep -Ev "$ALLOW_ERRORS")" ""
ok "end" cancel "$c"
done_testing
