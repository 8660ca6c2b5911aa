#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two jobs of two ranks share two GPUs under a real jigsawd: turns go round, the directive arrives after the blocks were found, and
# the ranks of a job stay equal.
set -uo pipefail

. "$top_srcdir/tests/lib/tap.sh"
. "$top_srcdir/tests/python/lib.sh"

jigsawd=$top_builddir/plugin/agent/jigsawd
[ -x "$jigsawd" ] || { echo "Bail out! $jigsawd is not built"; exit 1; }
[ "$(id -u)" = 0 ] || skip_all 'jigsawd runs as root'

work=$(mktemp -d /tmp/jigsaw-python.XXXXXX)
chmod 755 "$work"
pids=() daemon=
clean_up()
{
    kill -KILL ${pids[@]+"${pids[@]}"} ${daemon:+"$daemon"} 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT

cat >"$work/jigsaw.yaml" <<END
trace_file: $work/trace.jsonl
admin_comment_period_s: 0
scontrol: /bin/false
END
"$jigsawd" --config "$work/jigsaw.yaml" --node t1 --run-dir "$work/run" >"$work/jigsawd.log" 2>&1 &
daemon=$!
for _ in $(seq 200); do [ -S "$work/run/t1/socket" ] && break; sleep 0.1; done

register() # JOB, as the prolog does
{
    local token=$1-$1-$1-$1-$1-$1-$1-$1-$1-$1-$1
    printf 'job_id=%s\nrestart_count=0\nuid=0\ngpus=0,1\nrequest=spb=auto\ntoken_sha256=%s\nstart_s=%s\n' \
        "$1" "$(printf %s "$token" | sha256sum | cut -d' ' -f1)" "$1" >"$work/run/t1/jobs/.new"
    chmod 600 "$work/run/t1/jobs/.new"
    mv "$work/run/t1/jobs/.new" "$work/run/t1/jobs/$1.0"
}
start() # JOB
{
    local rank
    port=$(free_port)
    for rank in 0 1; do
        JIGSAW_SOCKET=$work/run/t1/socket JIGSAW_JOB=$1 JIGSAW_RESTART=0 JIGSAW_STEP=0 JIGSAW_TOKEN=$1-$1-$1-$1-$1-$1-$1-$1-$1-$1-$1 \
            JIGSAW_GPU=$rank RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout 100 "$python" "$here/one_rank.py" share 60 "$work/stop" >"$work/$1-$rank" 2>"$work/$1-$rank.err" &
        pids+=($!)
    done
}
grants_of() { grep -c "\"event\":\"grant\".*\"job\":$1\\b\|\"job\":$1\\b.*\"event\":\"grant\"" "$work/trace.jsonl" 2>/dev/null; }

register 11
register 12
start 11
start 12
for _ in $(seq 600); do
    [ "$(grants_of 11)" -gt 120 ] && [ "$(grants_of 12)" -gt 120 ] && break
    sleep 0.1
done
: >"$work/stop"
statuses=
for pid in "${pids[@]}"; do
    wait "$pid"
    statuses+="$? "
done
pids=()
is "four ranks end well" "$statuses" "0 0 0 0 "
ok "job 11 was given turns by jigsawd" test "$(grants_of 11)" -gt 50
ok "and job 12" test "$(grants_of 12)" -gt 50
for job in 11 12; do
    like "job $job: attached, and partial depth by a directive once blocks were found" "$(cat "$work/$job-0" "$work/$job-0.err")" \
        'partial [1-9][0-9]* generation [1-9][0-9]* blocks [2-9] attached True'
    is "job $job: the ranks' parameters are equal" "$(grep -o 'sum .*' "$work/$job-0")" "$(grep -o 'sum .*' "$work/$job-1")"
done
done_testing
