#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two users on the same GPU: neither can read, write, truncate or stall what is the other's.
. "$(dirname "$0")/runtime.sh"
CLUSTER_JIGSAW_YAML='sharing_scope: any'
start_shared_cluster
one=$(id -un 65534) two=$(getent passwd 1 | cut -d: -f1) # nobody and daemon: real uids of every Debian machine
long=(--iterations 1500 --forward-us 1000 --backward-us 3000)

# toy as another user; its files lie in a folder that is theirs alone.
as_user() { # USER NAME SPB-OPTION
    mkdir -p "$CLUSTER_DIR/out" && rm -f "$CLUSTER_DIR/out/$2"[-.]*
    SLURM_CONF=$CLUSTER_DIR/etc/slurm.conf timeout 30 runuser -u "$1" -- env -C / JIGSAW_CLUSTER="$CLUSTER_DIR" sbatch --parsable \
        --job-name="$2" -N2 -n2 --ntasks-per-node=1 --gres=gpu:1 -o "$CLUSTER_DIR/out/$2.out" "$3" \
        --wrap "export MASTER_ADDR=127.0.0.1; exec srun --kill-on-bad-exit=0 $TOY --metrics $CLUSTER_DIR/out/$2-rank{rank}.jsonl --progress $CLUSTER_DIR/out/$2-at{rank} ${long[*]}"
}
chmod 755 "$CLUSTER_DIR"
a=$(as_user "$one" a --spb=2)
ok "$one's job reaches iteration 5" reached a 0 5
b=$(as_user "$two" b --spb=2)
ok "$two's job reaches iteration 5 beside it" reached b 0 5
is "on the same GPU" "$(job_gpus "$b" n1)" "$(job_gpus "$a" n1)"

pid=$(toy_pid a 0)
# The process closed the descriptors when it had mapped the pages: what is left of them is under map_files.
pages=()
for map in /proc/"$pid"/map_files/*; do
    case $(readlink "$map") in *memfd:*) pages+=("$map") ;; esac
done
maps=$(grep -c 'memfd:' /proc/"$pid"/maps)
ok "the process has its two pages mapped" test "$maps" -ge 2
nok "$two cannot list $one's file descriptors" runuser -u "$two" -- ls "/proc/$pid/fd/"
is "root finds both" "${#pages[@]}" 2
for map in "${pages[@]}"; do
    nok "$two cannot read $one's page" runuser -u "$two" -- head -c 1 "$map"
    nok "$two cannot write $one's page" runuser -u "$two" -- dd if=/dev/zero of="$map" bs=1 count=1 conv=notrunc
    nok "$one cannot reach its page by name either" runuser -u "$one" -- dd if=/dev/zero of="$map" bs=1 count=1 conv=notrunc
done
nok "$two cannot read $one's memory" runuser -u "$two" -- head -c 1 "/proc/$pid/mem"
run_dir=$(agent_run_dir)/n1
nok "$one cannot read the records" runuser -u "$one" -- ls "$run_dir/jobs"
nok "$one cannot read the tokens" runuser -u "$one" -- ls "$run_dir/tokens"
nok "$one cannot remove the socket" runuser -u "$one" -- rm -f "$run_dir/socket"

# Sealed: nobody, not even root, can shrink what jigsawd reads or write what it told the process.
refused=0
for map in "${pages[@]}"; do
    nok "not even root can truncate a page" truncate -s 0 "$map"
    dd if=/dev/zero of="$map" bs=1 count=1 seek=4095 conv=notrunc 2>/dev/null || refused=$((refused + 1))
done
is "one of the two, the directive page, refuses to be written" "$refused" 1

# A user who stops his own process costs the other a moment, not his training.
runuser -u "$one" -- kill -STOP "$pid"
at=$(toy_at b 0)
ok "$two's job goes on while $one's process is stopped" reached b 0 $((at + 20))
runuser -u "$one" -- kill -CONT "$pid"
ok "$one's job ends well" ended_well "$a" a
ok "$two's job ends well" ended_well "$b" b
for node in 1 2; do ok "the model accepts the gate log of n$node" replay_accepts $node; done
done_testing
