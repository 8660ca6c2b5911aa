#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts/demo as people run it, small: its verdict, its files, and that nothing of it is left, after Ctrl-C too.
. "$(dirname "$0")/lib.sh"
: "${top_builddir:=$here/../../build}"
demo=$here/../../scripts/demo
for program in train_digits train_text; do
    [ -x "$top_builddir/runtime/examples/$program" ] || skip_all "$program is not built (LibTorch)"
done
[ "$(id -u)" = 0 ] || skip_all "needs root"
[ -x "${JIGSAW_PREFIX:-}/sbin/jigsawd" ] || skip_all "jigsawd is not in JIGSAW_PREFIX (make install)"
_plugins select_jigsaw.so

work=$(mktemp -d "${TMPDIR:-/tmp}/jigsaw-demo-test.XXXXXX")
chmod 755 "$work" # munged goes there as another user
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
demo() { # LOG OPTIONS...
    local log=$1
    shift
    timeout 300 "$demo" --no-build --build-dir "$top_builddir" --prefix "$JIGSAW_PREFIX" --out "$work/out" --port "$CLUSTER_PORT" \
        --iterations 50 "$@" >"$log" 2>&1
}
# Whatever the demo starts has its folder in its environment or on its command line.
nothing_left() {
    local entry
    for entry in /proc/[0-9]*; do
        [ "${entry#/proc/}" != "$$" ] || continue
        ! { cat "$entry/environ" "$entry/cmdline" | tr '\0' '\n' | grep -Eq "(^JIGSAW_CLUSTER=|^| )$work/jigsaw-demo\."; } 2>/dev/null || return 1
    done
    [ -z "$(ls -d "$work"/jigsaw-demo.* 2>/dev/null)" ]
}
says() { grep -q -e "$1" "$work/log"; }
report_has() { "${PYTHON:-python3}" -c 'import json, sys; r = json.load(open(sys.argv[1])); sys.exit(0 if eval(sys.argv[2]) else 1)' "$work/out/report.json" "$1"; }

ok "one round ends with a good verdict" demo "$work/log" --rounds 1 --no-controls
[ "$TEST_FAILED" = 0 ] || tail -n 25 "$work/log" | sed 's/^/# /' >&3
for way in exclusive shared_full shared_spb; do
    ok "$way: two jobs of 50 iterations, ranks alike" report_has "[(j['iterations'], len(set(j['sha256'])), len(j['sha256'])) for j in r['runs']['$way']['jobs']] == [(50, 1, 2)] * 2"
done
ok "the shared jobs were on the same GPUs of both nodes" report_has "all(len({tuple(j['gpus']) for j in r['runs'][w]['jobs']}) == 1 and len(r['runs'][w]['jobs'][0]['gpus']) == 2 for w in ('shared_full', 'shared_spb'))"
ok "SPB was shallower" report_has "all(j['mean_depth_fraction'] < 0.95 for j in r['runs']['shared_spb']['jobs'])"
ok "no turns overlapped" report_has "r['turn_overlap_fraction'] < 0.01 and r['turns_logged'] > 0"
ok "there is a picture" test -s "$work/out/timeline.png"
ok "no process and no folder is left" wait_for 10 nothing_left

# Ctrl-C in the middle of a shared run. A shell's background jobs ignore SIGINT for good, a terminal's do not.
rm -f "$work/log"
as_from_a_terminal='import os, signal, sys; os.setsid(); signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])'
"${PYTHON:-python3}" -c "$as_from_a_terminal" "$demo" --no-build --build-dir "$top_builddir" --prefix "$JIGSAW_PREFIX" --out "$work/out" \
    --port "$CLUSTER_PORT" --iterations 5000 --rounds 1 >"$work/log" 2>&1 3>&- &
pid=$!
ok "a second demo gets to its first run" wait_for 120 says 'round 1 of 1: exclusive'
sleep 2
kill -INT -- "-$pid"
ok "Ctrl-C ends it" wait_for 60 _cluster_gone "$pid"
wait "$pid"
is "with the status of Ctrl-C" "$?" 130
ok "no process and no folder is left" wait_for 10 nothing_left
ok "it said that it stops the cluster" says 'stopping the cluster'
done_testing
