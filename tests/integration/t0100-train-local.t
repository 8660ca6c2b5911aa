#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The two training programs as processes on loopback, without Slurm and without jigsawd: two and four ranks, partial depth, a
# log that replays, a checkpoint, SIGTERM, a rank that is killed. Small models: what is checked is that ranks agree.
set -uo pipefail

programs=$top_builddir/runtime/examples
for program in train_digits train_text; do
    [ -x "$programs/$program" ] || { echo "1..0 # SKIP $program is not built (LibTorch)"; exit 0; }
done
unset JIGSAW_SOCKET RANK WORLD_SIZE SLURM_PROCID SLURM_NTASKS SLURM_JOB_ID
work=$(mktemp -d)
pids=()
clean_up() {
    [ "${#pids[@]}" = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
number=0 failed=0
port=$((17000 + $$ % 8000))

ok() { # NAME COMMAND...
    local name=$1
    shift
    number=$((number + 1))
    if "$@" >"$work/why" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$work/why"
        tail -qn 3 "$work"/*.err 2>/dev/null | sed 's/^/#   /'
        failed=1
    fi
}
start() { # NAME RANKS PROGRAM OPTIONS...: pids[] of the ranks
    local name=$1 ranks=$2 program=$3 rank
    shift 3
    port=$((port + 8))
    pids=()
    for ((rank = 0; rank < ranks; rank++)); do
        RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$programs/$program" --timeout-ms 120000 \
            --metrics "$work/$name-{rank}.jsonl" "$@" 2>"$work/$name-$rank.err" &
        pids+=($!)
    done
}
finish() { # sets statuses
    local pid
    statuses=
    for pid in "${pids[@]}"; do
        wait "$pid"
        statuses+="$? "
    done
    pids=()
}
statuses_are() { [ "${statuses% }" = "$1" ] || { echo "exit statuses: $statuses"; return 1; }; }
end_of() { grep '"event":"end"' "$work/$1"; }
value_of() { sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" <<<"$(end_of "$1")"; }
one_sha() { # NAME RANKS: all ranks ended with the same parameters
    local rank sha
    sha=$(value_of "$1-0.jsonl" sha256)
    [ "${#sha}" = 64 ] || { echo "no digest of $1"; return 1; }
    for ((rank = 1; rank < $2; rank++)); do
        [ "$(value_of "$1-$rank.jsonl" sha256)" = "$sha" ] || { echo "rank $rank differs"; return 1; }
    done
}
depths_of() { sed -n 's/.*"iteration":\([0-9]*\),.*"depth":\([0-9]*\),.*/\1 \2/p' "$work/$1"; }
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }' || { echo "$1 is less than $2"; return 1; }; }
reached() { # FILE ITERATION, within a minute
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        grep -q "\"iteration\":$2," "$work/$1" 2>/dev/null && return 0
        sleep 0.1
    done
    echo "$1 never came to iteration $2"
    return 1
}
small=(--width 8 --batch 16 --quiet)

start full 2 train_digits "${small[@]}" --iterations 150
finish
ok "digits, two ranks, full depth: both end well" statuses_are "0 0"
ok "digits: the parameters of both ranks are equal" one_sha full 2
ok "digits: at least 97 % are right" at_least "$(value_of full-0.jsonl accuracy)" 0.97

start spb 4 train_digits "${small[@]}" --iterations 60 --policy two-level --full-workers 2 --warmup-fraction 0.1 --directive-log "$work/directives.jsonl"
finish
ok "digits, four ranks, two levels: all end well" statuses_are "0 0 0 0"
ok "digits: the parameters of all ranks are equal" one_sha spb 4
two_full() { # in each iteration after the warm-up, two of four at full depth
    cat "$work"/spb-[0-3].jsonl | sed -n 's/.*"iteration":\([0-9]*\),.*"depth":\([0-9]*\),.*/\1 \2/p' |
        awk '{ sum[$1] += $2; n[$1]++ } END { for (t in sum) if (n[t] != 4 || sum[t] != (t + 0 < 6 ? 16 : 10)) { print "iteration " t ": " sum[t]; bad = 1 } exit bad }'
}
ok "digits: two of four run full depth after the warm-up" two_full
ok "digits: mean depth is below 1" awk -v d="$(value_of spb-0.jsonl mean_depth_fraction)" 'BEGIN { exit !(d > 0.3 && d < 0.9) }'

start replay 4 train_digits "${small[@]}" --iterations 60 --replay "$work/directives.jsonl"
finish
same_run() { one_sha replay 4 && [ "$(value_of spb-0.jsonl sha256)" = "$(value_of replay-0.jsonl sha256)" ]; }
ok "digits: the directive log replays to the same parameters" same_run

start whole 2 train_digits "${small[@]}" --iterations 40
finish
start part 2 train_digits "${small[@]}" --iterations 40 --save "$work/part.pt" --beat 5
ok "digits: the run to be stopped goes on" reached part-0.jsonl 10
kill -TERM "${pids[0]}"
finish
ok "digits: SIGTERM to one rank ends both, cleanly" statuses_are "0 0"
at_part=$(value_of part-0.jsonl iterations)
stopped_together() { [ -s "$work/part.pt" ] && [ "$at_part" = "$(value_of part-1.jsonl iterations)" ]; }
ok "digits: after the same iteration, with a checkpoint" stopped_together
start rest 2 train_digits "${small[@]}" --iterations 40 --resume "$work/part.pt"
finish
resumed() { statuses_are "0 0" && [ "$(value_of rest-0.jsonl sha256)" = "$(value_of whole-0.jsonl sha256)" ]; }
ok "digits: going on from it gives the parameters of an unbroken run" resumed

start killed 2 train_digits "${small[@]}" --iterations 100000
ok "digits: the run to be killed goes on" reached killed-0.jsonl 5
kill -KILL "${pids[1]}"
finish
named() { [ "${statuses%% *}" = 1 ] && grep -q 'rank 1' "$work/killed-0.err"; }
ok "digits: a killed rank is named by the other, which ends" named

head -c 60000 /dev/zero | tr '\0' 'a' >"$work/short.txt" # no letters to learn, but a text
start text 2 train_text --data "$work/short.txt" --width 16 --batch 4 --quiet --iterations 12 --policy rotate
finish
ok "text, two ranks, rotating: both end well" statuses_are "0 0"
ok "text: the parameters of both ranks are equal" one_sha text 2
start none 1 train_text --data /nonexistent --iterations 12
finish
ok "text: no text is a skip that says what to do" eval 'statuses_are 77 && grep -q "skipped: /nonexistent" "$work/none-0.err"'
start help 1 train_digits --help >"$work/help.out"
finish
ok "help names every option group" eval 'statuses_are 0 && [ "$(grep -c "^Training$\|^Depth\|^Run$" "$work/help.out")" = 3 ]'
start nosave 1 train_digits "${small[@]}" --iterations 2 --save "$work/none/x.pt"
finish
ok "a checkpoint that cannot be written is refused before training" eval 'statuses_are 1 && [ "$(wc -l <"$work/nosave-0.err")" = 1 ] && grep -q -e "--save $work/none/x.pt: No such file" "$work/nosave-0.err"'
echo junk >"$work/junk"
for file in junk missing; do
    start "$file" 1 train_digits "${small[@]}" --iterations 2 --resume "$work/$file"
    finish
    ok "--resume $file is one line" eval 'statuses_are 1 && [ "$(wc -l <"$work/$file-0.err")" = 1 ] && grep -q "$work/$file is no checkpoint of jigsaw" "$work/$file-0.err"'
done
start data 1 train_digits --data "$work/junk"
finish
ok "data that are none are named by file, line and column" eval 'statuses_are 1 && grep -q "junk:1: column 1 is \"junk\", allowed is 0 to 16" "$work/data-0.err"'
start bad 1 train_digits --policy deep
finish
ok "a bad value names what is allowed" eval 'statuses_are 2 && grep -q "allowed is full, two-level" "$work/bad-0.err"'
echo "1..$number"
exit $failed
