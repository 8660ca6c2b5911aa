# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Progress for people: every step says what it does and how long we have been at it. Sourced by scripts/*.
#
#   say TEXT                  ==> [ 12 s] TEXT
#   die TEXT                  error: TEXT on stderr, exit status 1
#   run_logged LOG COMMAND    runs it with its output in LOG, a line every 30 s, the last 40 lines of LOG on failure

JIGSAW_STARTED=${JIGSAW_STARTED:-$(date +%s)}
export JIGSAW_STARTED

elapsed_s() { echo $(($(date +%s) - JIGSAW_STARTED)); }

say() { printf '==> [%4d s] %s\n' "$(elapsed_s)" "$*"; }

die()
{
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# A line every 30 s while a long command writes LOG, for as long as process OWNER lives: Ctrl-C does not reach a job in
# the background. Its naps are short, so that none outlives it by more than a second.
heartbeat() # LOG OWNER
{
    local second
    while :; do
        for ((second = 0; second < 30; second++)); do
            sleep 1 >/dev/null 2>&1
            kill -0 "$2" 2>/dev/null || exit 0
        done
        printf '    [%4d s] ... still at it: %s\n' "$(elapsed_s)" "$(tail -n 1 "$1" | cut -c1-100)"
    done
}

run_logged()
{
    local log=$1 beat status=0
    shift
    mkdir -p "$(dirname "$log")"
    : >"$log"
    heartbeat "$log" "$BASHPID" &
    beat=$!
    "$@" >"$log" 2>&1 </dev/null || status=$?
    kill "$beat" 2>/dev/null || true
    wait "$beat" 2>/dev/null || true
    if [ "$status" -ne 0 ]; then
        printf 'error: exit status %d: %s\n       the end of %s:\n' "$status" "$*" "$log" >&2
        tail -n 40 "$log" >&2
    fi
    return "$status"
}
