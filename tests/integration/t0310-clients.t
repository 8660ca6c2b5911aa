#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The plugin in other programs: each program linked with libslurm loads it. And the second name, cons_tres_jigsaw.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2
command -v "${CC%% *}" >/dev/null 2>&1 || CC=cc

data_symbols() { # undefined data symbols that are not weak: they would keep the plugin from loading
    comm -12 <(nm -D --undefined-only "$1" | awk '$1 == "U" { sub(/@.*/, "", $2); print $2 }' | sort -u) \
        <(nm -D --defined-only /usr/sbin/slurmctld | awk '$2 ~ /^[BDR]$/ { sub(/@.*/, "", $3); print $3 }' | sort -u)
}
exported() { nm -D --defined-only "$1" | awk '{ print $3 }' | sed 's/@.*//' | grep -Ev '^(plugin_(name|type|id|version)|init|fini|select_p_.*)$'; }
start_cluster
dir=${JIGSAW_PLUGINS:-$(cluster_slurm_plugins)}
ok "slurmctld has data symbols to compare with" grep -q 'node_record_count$' <(nm -D --defined-only /usr/sbin/slurmctld)
for name in select_jigsaw select_cons_tres_jigsaw; do
    is "$name needs no data of slurmctld" "$(data_symbols "$dir/$name.so")" ""
    is "$name exports what Slurm looks up and nothing else" "$(exported "$dir/$name.so")" ""
    ok "$name has all that cons_tres has" test -z "$(comm -13 \
        <(nm -D --defined-only "$dir/$name.so" | awk '{ print $3 }' | grep select_p_ | sort) \
        <(nm -D --defined-only "$(cluster_slurm_plugins)/select_cons_tres.so" | awk '{ print $3 }' | grep select_p_ | sort))"
    nok "$name is not bound at once" grep -q BIND_NOW <(readelf -d "$dir/$name.so")
done

client=$CLUSTER_DIR/slurm_client
if have_libslurm; then
    ok "the client compiles" build_client "$client"
    a=$(submit --spb -N2 --gres=gpu:2)
    running "$a"
    is "a program linked with libslurm works" "$(slurm "$client" jobs 2>&1)" "2 nodes 1 jobs"
    is "for a user, too" "$(slurm runuser -u nobody -- "$client" jobs 2>&1)" "2 nodes 1 jobs"
    slurm scancel "$a"
else
    say "no libslurm headers or compiler: the client is not tried"
fi
ok "no error so far" no_errors
cluster_stop

CLUSTER_SELECT=select/cons_tres_jigsaw
ok "a cluster with select/cons_tres_jigsaw" cluster_start
a=$(submit --spb -N2 --gres=gpu:2)
running "$a"
b=$(submit --spb -N2 --gres=gpu:2)
ok "two jobs share" share "$a" "$b" n1 n2
ok "restart" cluster_restart ctld
ok "they still do" share "$a" "$b" n1 n2
[ ! -x "$client" ] || is "the client works" "$(slurm "$client" jobs 2>&1)" "2 nodes 2 jobs"
ok "end" cancel "$a" "$b"
ok "no error in slurmctld's log" no_errors
done_testing
