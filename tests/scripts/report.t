#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo_report.py on runs made by hand: what it counts, and that it says no when something is wrong.
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
report=$top/scripts/lib/demo_report.py
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0 failed=0
check() { count=$((count + 1)); if [ "$1" = 0 ]; then echo "ok $count - $2"; else echo "not ok $count - $2"; failed=1; fi; }

# make_run WAY DEPTHS-OF-RANK-1: one round with two jobs of two ranks and six iterations
make_run() {
    local run=$work/runs/$1-1 job rank t depth begin
    mkdir -p "$run"
    echo "{\"way\":\"$1\",\"round\":1,\"submit_ns\":0,\"end_ns\":${3:-10000000000}}" >"$run/times.json"
    for job in a b; do
        # Both spellings: scontrol folds nodes on which a job holds the same.
        printf '   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\n   Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\n' >"$run/$job.scontrol"
        [ "$job" = b ] || echo '     Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:1(IDX:0)' >"$run/$job.scontrol"
        [ "$1" != shared_spb ] || echo '{"generation":1,"first_iteration":2,"policy":"two-level","phase":0,"direction":1,"levels":2,"full_workers":1,"seed":0,"depth_of_level":[1,4]}' >"$run/$job-directives.jsonl"
        for rank in 0 1; do
            for t in 0 1 2 3 4 5; do
                depth=4
                if [ "$1" = shared_spb ] && [ "$t" -ge 2 ] && [ $(((rank + t) % 2)) = 1 ]; then depth=1; fi
                [ "$rank$t" = "${2:-none}" ] && depth=3
                begin=$((t * 100 + (rank * 10)))
                echo "{\"iteration\":$t,\"t_ns\":$begin,\"depth\":$depth,\"num_blocks\":4,\"forward_ms\":1,\"backward_ms\":2}"
            done >"$run/$job-rank$rank.jsonl"
            echo "{\"event\":\"end\",\"t_ns\":700,\"accuracy\":0.98,\"mean_depth_fraction\":0.75,\"sha256\":\"${4:-feed}\"}" >>"$run/$job-rank$rank.jsonl"
        done
    done
    printf '{"t_ns":%d,"gpu":0,"event":"%s","process":%d,"job":%d,"iteration":0,"depth":4}\n' \
        0 grant 1 7 "${5:-100}" release 1 7 100 grant 2 8 200 release 2 8 >"$run/trace-n1.jsonl"
}
all() { rm -rf "$work/runs"; make_run exclusive; make_run shared_full; make_run shared_spb "$@"; echo '{"slurm_version":"0","gpus":"gpu:1"}' >"$work/facts.json"; }

all '' 8000000000
"$python" "$report" "$work" >"$work/out" 2>&1
check $? "good runs are good"
grep -q '"ratio_spb_to_full": 0.8' "$work/report.json"
check $? "the ratio is that of the medians"
grep -q '"turn_overlap_fraction": 0.0' "$work/report.json"
check $? "turns one after the other do not overlap"
all 13
! "$python" "$report" "$work" >"$work/out" 2>&1
check $? "a depth that the directive does not say is an error"
grep -q 'rank 1 iteration 3: depth 3' "$work/out"
check $? "and is named"
all '' '' feed 150
! "$python" "$report" "$work" >"$work/out" 2>&1
check $? "two holders at once are an error"
answer=$("$python" "$report" --batches "$work/runs/exclusive-1" a=10 b=4) # iterations of 3 ms: 50 are wanted
[ "$answer" = "a=167 b=67" ]
check $? "batches grow until iterations last long enough: $answer"
sed -i 's/"backward_ms":2/"backward_ms":79/' "$work"/runs/exclusive-1/a-rank*.jsonl
answer=$("$python" "$report" --batches "$work/runs/exclusive-1" a=10 b=4)
[ "$answer" = "a=10 b=107" ]
check $? "the other job follows one that is slow already: $answer"
all
sed -i 's/feed/beef/' "$work/runs/shared_full-1/a-rank1.jsonl"
! "$python" "$report" "$work" >"$work/out" 2>&1
check $? "ranks with different parameters are an error"
all
sed -i 's/IDX:0/IDX:1/' "$work/runs/shared_full-1/b.scontrol"
! "$python" "$report" "$work" >"$work/out" 2>&1
check $? "jobs on different GPUs are an error"
all
sed -i '/event/d' "$work/runs/shared_full-1/a-rank1.jsonl"
! "$python" "$report" "$work" >"$work/out" 2>&1
check $? "a rank that did not finish is an error"
echo "1..$count"
exit $failed
