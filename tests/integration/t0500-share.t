#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two sharing jobs on the same GPUs of two nodes: turns, agreed depths, right results, a log that the model accepts.
. "$(dirname "$0")/runtime.sh"
start_shared_cluster

a=$(toy a --spb=2 -- --iterations 600 --forward-us 1000 --backward-us 3000)
ok "a runs" running "$a"
ok "a reaches iteration 3" reached a 0 3
b=$(toy b --spb=2 -- --iterations 600 --forward-us 1000 --backward-us 3000)
ok "b runs beside it" running "$b"
is "a holds GPU 0 of n1" "$(job_gpus "$a" n1)" 0
is "b holds the same GPU of n1" "$(job_gpus "$b" n1)" 0
is "b holds the same GPU of n2" "$(job_gpus "$b" n2)" 0
reached a 0 30 && reached b 0 30 || say "the pair does not get going: a $(toy_at a 0), b $(toy_at b 0)"

# The commands that people type, on the live cluster.
jigsaw() { slurm timeout 30 "$PREFIX/bin/jigsaw" "$@" --config "$CLUSTER_DIR/etc/jigsawd-n1.yaml" 2>&1; }
like "jigsaw status shows both jobs" "$(jigsaw status)" "$a .*(.|\n)*$b"
is "its JSON has both jobs in one group on GPU 0" "$(jigsaw status --json | "${PYTHON:-python3}" -c '
import json, sys
node = json.loads(sys.stdin.readline())
print(*sorted(str(job["job_id"]) for job in node["jobs"]), {job["group"] for job in node["jobs"]})')" "$a $b {0}"
like "jigsaw top looks once" "$(jigsaw top -n 1)" "$b"
ok "jigsaw doctor is content with this cluster" jigsaw doctor
ok "jigsaw trace is written" jigsaw trace --output "$CLUSTER_DIR/out/trace.json"
is "and has turns of both jobs" "$("${PYTHON:-python3}" -c '
import json, re, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
print(*sorted({re.search(r"[0-9]+", e["name"]).group() for e in events if e.get("ph") == "X"}))' \
    "$CLUSTER_DIR/out/trace.json")" "$a $b"

c=$(submit --gres=gpu:1 -N1)
ok "a job that does not share waits" pending "$c"
ok "a's parameters are right at the end" ended_well "$a" a
ok "b's parameters are right at the end" ended_well "$b" b
ok "the job that does not share runs afterwards" running "$c"
cancel "$c"

depths() { sed -n 's/.*"depth":\([0-9]*\).*/\1/p' "$CLUSTER_DIR/out/$1-rank$2.jsonl" | sort -n | uniq | tr '\n' ' '; }
is "rank 0 of a ran full depth and the last block only" "$(depths a 0)" "1 4 "
is "rank 1 of b ran full depth and the last block only" "$(depths b 1)" "1 4 "
# In every iteration at least one worker computed everything.
paired() { paste -d' ' <(sed -n 's/.*"depth":\([0-9]*\).*/\1/p' "$CLUSTER_DIR/out/$1-rank0.jsonl") \
    <(sed -n 's/.*"depth":\([0-9]*\).*/\1/p' "$CLUSTER_DIR/out/$1-rank1.jsonl"); }
nok "in no iteration of a were both workers shallow" grep -qx '1 1' <(paired a)
for node in 1 2; do
    turns=$(grep -c '"event":"grant"' "$(agent_trace $node)")
    ok "jigsawd of n$node granted turns ($turns)" test "$turns" -gt 300
    ok "the model accepts the gate log of n$node" replay_accepts $node
done
ok "no record of a is left" wait_for 10 records_gone "$a"
ok "no record of b is left" wait_for 10 records_gone "$b"
# A rival that only rank 1 has: rank 0's jigsawd, which decides the depths, learns of it through the exchange of the ranks.
a=$(toy a --spb=2 -- --iterations 600 --forward-us 1000 --backward-us 3000)
ok "a runs on both nodes" running "$a"
ok "a reaches iteration 3" reached a 0 3
b=$(toy b --spb=2 -N1 -n1 -w n2 -- --iterations 600 --forward-us 1000 --backward-us 3000)
ok "b runs on n2 alone" running "$b"
is "beside a" "$(job_gpus "$b" n2)" "$(job_gpus "$a" n2)"
ok "a's parameters are right at the end" ended_well "$a" a
is "rank 0 of a, with nobody beside it, ran the last block only in some iterations" "$(depths a 0)" "1 4 "
nok "in no iteration were both workers shallow" grep -qx '1 1' <(paired a)
ok "b ends" wait_for 60 job_over "$b"
ok "b's parameters are right" grep -q 'parameters are right' "$CLUSTER_DIR/out/b.out"
done_testing
