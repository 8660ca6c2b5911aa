#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What the site allows (jigsaw.yaml by partition and account, PrologFlags) and what a client forges.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=1 CLUSTER_GPUS=2
CLUSTER_PARTITIONS='PartitionName=main Nodes=n1 Default=YES MaxTime=INFINITE State=UP
PartitionName=alone Nodes=n1 MaxTime=INFINITE State=UP
PartitionName=three Nodes=n1 MaxTime=INFINITE State=UP'
CLUSTER_JIGSAW_YAML='partitions:
  alone:
    sharing: off
accounts:
  quiet:
    sharing: off
  open:
    sharing_scope: any'
command -v "${CC%% *}" >/dev/null 2>&1 || CC=cc
CLIENT=$(mktemp -d)
if have_libslurm; then ok "the client compiles" build_client "$CLIENT/slurm_client"; else CLIENT=; fi
start_cluster

pair_shares() { # options of both, of the second
    a=$(submit --spb --gres=gpu:2 $1)
    running "$a" || return 1
    b=$(submit --spb --gres=gpu:2 $1 $2)
    settle || return 1
    if job_is "$b" RUNNING; then cancel "$a" "$b"; return 0; fi
    cancel "$a" "$b"
    return 1
}
ok "sharing is on by default" pair_shares
nok "off in a partition" pair_shares "-p alone"
nok "off for the second's partition" pair_shares "" "-p alone"
nok "off for an account" pair_shares "-A quiet"
ok "another account" pair_shares "-A loud"
a=$(submit_as nobody --spb --gres=gpu:2 -A open)
running "$a"
b=$(submit --spb --gres=gpu:2 -A open)
ok "sharing_scope any for an account: two users share" share "$a" "$b" n1
ok "end" cancel "$a" "$b"
nok "--spb-share=no" pair_shares "--spb-share=no"
nok "--spb=off" pair_shares "--spb=off"
ok "--spb=full" pair_shares "--spb=full"

echo 'sharing: maybe' >"$CLUSTER_DIR/etc/jigsaw.yaml"
ok "a bad jigsaw.yaml, reconfigure" slurm scontrol reconfigure
ok "is named with file, line and column" wait_for 10 ctld_log 'error: jigsaw: .*/etc/jigsaw.yaml:1:[0-9]*: sharing: .*the settings read before stay'
nok "the old settings stay" pair_shares "-p alone"
ok "both of them" pair_shares
ok "a restart with the bad file" cluster_restart ctld
nok "they stay even then" pair_shares "-p alone"
ok "both of them, too" pair_shares
echo 'sharing: off' >"$CLUSTER_DIR/etc/jigsaw.yaml"
slurm scontrol reconfigure
nok "sharing switched off" pair_shares
echo 'sharing: on' >"$CLUSTER_DIR/etc/jigsaw.yaml"
slurm scontrol reconfigure
ok "and on again" pair_shares
a=$(submit --spb --gres=gpu:2)
running "$a"
b=$(submit --spb --gres=gpu:2)
ok "two share" share "$a" "$b" n1
echo 'sharing: off' >"$CLUSTER_DIR/etc/jigsaw.yaml"
slurm scontrol reconfigure
ok "switched off while they do: they go on" share "$a" "$b" n1
ok "one ends" cancel "$a"
c=$(submit --spb --gres=gpu:1)
ok "nobody takes its place" pending "$c"
is "counted once" "$(node_gpus_used n1)" gpu:2
ok "the other ends" cancel "$b"
ok "the next has its GPU alone" running "$c"
ok "end" cancel "$c"
ALLOW_ERRORS+='|jigsaw.yaml:1:'

echo 'sharing: on' >"$CLUSTER_DIR/etc/jigsaw.yaml"
slurm scontrol reconfigure
if [ -n "$CLIENT" ]; then
    forge() { slurm "$CLIENT/slurm_client" submit /dev/null "$@"; }
    a=$(forge _SLURM_SPANK_OPTION_jigsaw_spb=full)
    ok "an option without sbatch is an option" running "$a"
    like "it shares" "$(slurm scontrol show job "$a")" 'may share GPUs'
    b=$(forge _SLURM_SPANK_OPTION_jigsaw_spb=$'\033[2Jx' _SLURM_SPANK_OPTION_jigsaw_spb_mem=lots)
    ok "a bad value" running "$b"
    nok "means GPUs of its own" grep -q 'may share' <(slurm scontrol show job "$b")
    is "one line says so" "$(ctld_log "jigsaw: job $b: .*it gets GPUs of its own" | wc -l)" 1
    nok "without the client's control characters" grep -q $'\033' "$(cluster_log ctld)"
    ok "end" cancel "$a" "$b"
    cat >"$CLUSTER_DIR/etc/prolog.sh" <<PROLOG
#!/bin/sh
env > $CLUSTER_DIR/prolog.\$SLURM_JOB_ID
PROLOG
    chmod +x "$CLUSTER_DIR/etc/prolog.sh"
    echo "Prolog=$CLUSTER_DIR/etc/prolog.sh" >>"$CLUSTER_DIR/etc/slurm.conf"
    slurm scontrol reconfigure
    a=$(forge JIGSAW_MAP=forged SPANK_JIGSAW_TOKEN=forged OTHER_TOOL=kept)
    ok "a job with forged names" running "$a"
    ok "its prolog ran" wait_for 20 test -s "$CLUSTER_DIR/prolog.$a"
    ok "it saw what is not ours" wait_for 5 grep -q 'SPANK_OTHER_TOOL=kept' "$CLUSTER_DIR/prolog.$a"
    nok "nothing forged in our name" grep -q forged "$CLUSTER_DIR/prolog.$a"
    ok "end" cancel "$a"
    sed -i '/^Prolog=/d' "$CLUSTER_DIR/etc/slurm.conf"
    rm -rf "$CLIENT"
else
    say "no libslurm headers or compiler: forged requests are not tried"
fi

CLUSTER_PROLOG_FLAGS="" CLUSTER_JIGSAW_YAML=""
cluster_configure
ok "without PrologFlags=Alloc" cluster_restart ctld
cluster_restart 1
wait_for 20 cluster_nodes_idle
nok "nothing is shared" pair_shares
is "and one line says why" "$(ctld_log 'jigsaw: PrologFlags lacks Alloc' | wc -l)" 1
ALLOW_ERRORS+='|PrologFlags lacks Alloc'
ok "no other error in slurmctld's log" no_errors
done_testing
