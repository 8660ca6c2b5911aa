#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two ranks of which one goes wrong: the other one ends soon and names it. And ranks that only a process group or Slurm knows.
set -uo pipefail

. "$top_srcdir/tests/lib/tap.sh"
. "$top_srcdir/tests/python/lib.sh"

work=$(mktemp -d)
pids=()
clean_up()
{
    [ "${#pids[@]}" = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT

# start NAME HOW0 HOW1: two ranks as srun starts them
start()
{
    local name=$1 rank=0 how
    shift
    pids=()
    port=$(free_port)
    for how in "$@"; do
        # shellcheck disable=SC2086
        SLURM_PROCID=$rank SLURM_NTASKS=$# MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout 60 "$python" "$here/one_rank.py" $how >"$work/$name-$rank" 2>&1 &
        pids+=($!)
        rank=$((rank + 1))
    done
}
finish()
{
    local pid
    statuses=
    for pid in "${pids[@]}"; do
        wait "$pid"
        statuses+="$? "
    done
    pids=()
}
said() { cat "$work/$1"; }

start killed on "kill 5"
start_killed=("${pids[@]}")
start raised on "raise 5"
finish
is "an exception on rank 1 ends both" "$statuses" "3 1 "
like "rank 0 names rank 1 and the iteration" "$(said raised-0)" 'PeerLeft: .*rank 1.*iteration 5'
like "rank 1 shows the user's exception" "$(said raised-1)" "KeyError: 'of the user'"
pids=("${start_killed[@]}")
finish
is "a killed rank ends the other one" "$statuses" "3 137 "
like "which names it" "$(said killed-0)" 'PeerLeft: .*rank 1'

start stopped on "stop 6"
start_stopped=("${pids[@]}")
start skipped on "skip 6"
finish
is "a rank that skips a step alone is found by both" "$statuses" "3 3 "
like "with ranks and iteration" "$(said skipped-0)" 'Disagree: .*rank 1'
pids=("${start_stopped[@]}")
finish
is "a rank that ends early leaves without an error of its own" "$statuses" "3 0 "
like "the other one names it" "$(said stopped-0)" 'PeerLeft: rank 1 left after iteration [67]'

start waits on "sleep 4"
for _ in $(seq 300); do grep -q sleeping "$work/waits-1" && break; sleep 0.1; done
began=$(date +%s)
sleep 0.5
kill -INT "$(pgrep -P "${pids[0]}")"
for _ in $(seq 100); do kill -0 "${pids[0]}" 2>/dev/null || break; sleep 0.1; done
ok "Ctrl-C ends a wait for another rank" test $(($(date +%s) - began)) -lt 15
like "by KeyboardInterrupt" "$(said waits-0)" KeyboardInterrupt
kill -KILL "$(pgrep -P "${pids[1]}")" 2>/dev/null
finish

pids=()
for rank in 0 1; do
    timeout 60 "$python" "$here/one_rank.py" group $rank 2 "$work/store" >"$work/group-$rank" 2>&1 &
    pids+=($!)
done
finish
is "ranks known by a process group alone meet" "$statuses" "0 0 "
is "and hold the same gradients" "$(grep ^sum "$work/group-0")" "$(grep ^sum "$work/group-1")"
done_testing
