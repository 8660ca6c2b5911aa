#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# jigsaw sim as a user runs it: a small trace of its own, its answers, its complaints.
. "$top_srcdir/tests/lib/tap.sh"
jigsaw=$top_builddir/plugin/cli/jigsaw
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
says() { "$jigsaw" sim "$@" 2>&1; }
status_of() { "$jigsaw" sim "$@" >/dev/null 2>&1; echo $?; }

# Two jobs for the one GPU: 100 s each, at once. In turn: 100 and 200 s.
cat >"$dir/jobs.csv" <<'END'
timestamp,duration,num_gpus
2026-01-01 00:00:00,100,1
2026-01-01 00:00:00,100,1
END
cat >"$dir/models.csv" <<'END'
model,num_gpu,iteration_ms,forward_ms,backward_ms,network_ms,cpu_ms
half,1,100,20,30,0,50
END
small=(--trace "$dir/jobs.csv" --nodes 1 --gpus-per-node 1)

like "the policies are listed" "$(says --list)" 'backfill/stay +EASY backfill'
like "jobs in turn take 150 s in the mean" "$(says "${small[@]}" --policies fifo --json)" '"avg_jct_s":150,'
like "jobs that need half of the GPU share it" \
    "$(says "${small[@]}" --profiles "$dir/models.csv" --policies share --json)" '"avg_jct_s":105,'
like "a table is for people" "$(says "${small[@]}" --policies backfill)" 'backfill/stay +150 '
is "the same seed gives the same answer" \
    "$(says --generate jobs=50 --runs 2 --policies share --json | sed 's/"decision.*//')" \
    "$(says --generate jobs=50 --runs 2 --policies share --json | sed 's/"decision.*//')"
is "it ends well" "$(status_of "${small[@]}")" 0

says "${small[@]}" --policies fifo --jobs "$dir/out.csv" --samples "$dir/samples.csv" --spans "$dir/spans.csv" >/dev/null
like "every job is written" "$(sed -n 3p "$dir/out.csv")" '^fifo/stay,1,,,1,0.000,100.000,200.000,100.000,500.000,0,1$'
like "what GPUs held is written" "$(sed -n 2p "$dir/spans.csv")" '^fifo/stay,0,0,0.000,100.000,0,0$'

printf 'x,y,z\n' >>"$dir/jobs.csv"
like "a bad line is named" "$(says "${small[@]}")" "jobs.csv:4: 'x' is no time like"
is "and ends it" "$(status_of "${small[@]}")" 1
like "or is counted" "$(says "${small[@]}" --skip-bad --policies fifo)" '1 bad lines left out'
like "a file that is not there is named" "$(says --trace "$dir/none")" "none: No such file"
like "no trace is told" "$(says)" 'give either --trace FILE or --generate'
like "an unknown policy is named" "$(says --policies sjf --generate default)" "'sjf' is no policy; there are"
like "a bad number is named" "$(says --generate default --pay x)" "--pay 'x' is no number in 0..1000"
is "an unknown option is wrong usage" "$(status_of --nonsense)" 2
done_testing
