#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What people mistype: each is one line that names the value, a status that is not 0, and nothing done.
top=${top_srcdir:-.}
count=0 failed=0
ok() { # TEXT STATUS-OF-TEST
    count=$((count + 1))
    if [ "$2" = 0 ]; then echo "ok $count - $1"; else echo "not ok $count - $1"; failed=1; fi
}
dir=$(mktemp -d /tmp/jigsaw-usage.XXXXXX)
trap 'rm -rf "$dir"' EXIT

refuses() { # STATUS PATTERN COMMAND...
    local want=$1 pattern=$2 status=0 text
    shift 2
    text=$(timeout 20 "$@" 2>&1 </dev/null) || status=$?
    { [ "$status" = "$want" ] && grep -q -e "$pattern" <<<"$text"; }
    ok "$(basename "$1") ${*:2}" $?
}
refuses 1 '--only untit: no such suite; there are .*unit' "$top/scripts/check" --only untit
refuses 1 '--only gpu: no such suite' "$top/scripts/check" --only gpu
refuses 1 '--dir needs a value' "$top/scripts/check" --dir
refuses 1 'unknown option --fast' "$top/scripts/check" --fast
refuses 1 '--prefix needs a value' "$top/scripts/build" --prefix
refuses 2 '--out needs a value' "$top/scripts/demo" --out
refuses 2 '--rounds 08: not a number' "$top/scripts/demo" --rounds 08
refuses 2 '--iterations 20: at least 50' "$top/scripts/demo" --iterations 20
refuses 2 '--port 70000: from 1024 to 65532' "$top/scripts/demo" --port 70000
refuses 2 '--frobnicate: not an option' "$top/scripts/demo" --frobnicate
if [ "$(id -u)" = 0 ]; then # it looks at that first
    mkdir "$dir/runs"
    refuses 2 'runs is there and not of an earlier demo' "$top/scripts/demo" --no-build --out "$dir"
    [ -d "$dir/runs" ] && [ "$(ls -A "$dir")" = runs ]
    ok "a folder of somebody else's stays as it was" $?
fi

# Ctrl-C in a long step of a script leaves nothing behind.
cat >"$dir/long" <<LONG
. "$top/scripts/lib/say.sh"
echo \$\$ >"$dir/pid"
run_logged "$dir/long.log" sleep 50
LONG
# A shell's background jobs ignore SIGINT for good; a terminal's do not.
as_from_a_terminal='import os, signal, sys; os.setsid(); signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])'
"${PYTHON:-python3}" -c "$as_from_a_terminal" bash "$dir/long" >/dev/null 2>&1 &
for ((i = 0; i < 100; i++)); do [ -s "$dir/pid" ] && break; sleep 0.1; done
sleep 0.5
group=$(cat "$dir/pid")
kill -INT -- "-$group"
for ((i = 0; i < 50; i++)); do kill -0 -- "-$group" 2>/dev/null || break; sleep 0.1; done
! kill -0 -- "-$group" 2>/dev/null
ok "Ctrl-C leaves no process of a long step" $?
kill -KILL -- "-$group" 2>/dev/null
echo "1..$count"
exit "$failed"
