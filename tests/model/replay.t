#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/model/replay: accepts logs that the model of the gate prints, and names the first line of those it forbids.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../lib/tap.sh"
: "${top_builddir:=.}" "${SPIN:=spin}"
replay=$top_builddir/tests/model/replay

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# "event process" words as a log on GPU 0; "gpu=1" before an event moves it there, "t=N" sets the clock.
log()
{
    awk -v RS=' +|\n' '
        /^gpu=/ { gpu = substr($0, 5); next }
        /^t=/ { t = substr($0, 3); next }
        $0 == "start" { printf "{\"t_ns\":%d,\"event\":\"start\"}\n", t++; next }
        /^[a-z]/ { event = $0; next }
        /^[0-9]/ { printf "{\"t_ns\":%d,\"gpu\":%d,\"event\":\"%s\",\"process\":%d,\"job\":12,\"depth\":4}\n",
                          t++, gpu + 0, event, $0 }' <<<"$1"
}

accepts() { log "$2" >"$work/log"; ok "accepts: $1" "$replay" "$work/log"; }

# refuses NAME LINE REASON EVENTS
refuses()
{
    local output status
    log "$4" >"$work/log"
    output=$("$replay" "$work/log")
    status=$?
    like "refuses: $1" "$status $output" "^1 .*/log:$2: .*$3"
}

accepts 'turns one after the other' 'close 1 close 2 want 1 want 2 grant 1 release 1 grant 2 want 1 release 2 grant 1'
accepts 'a rival comes while one computes' 'open 1 close 2 close 1 run 1 want 2 release 1 grant 2'
accepts 'both computed when their gates closed' \
    'open 1 open 2 close 1 run 1 close 2 run 2 release 1 want 1 release 2 grant 1'
accepts 'the last one is opened after its want' 'close 1 close 2 want 1 dead 2 grant 1 open 1 close 3 close 1 want 3 grant 3'
accepts 'a want behind an open gate' 'close 1 close 2 dead 2 open 1 want 1 grant 1 want 1 grant 1'
accepts 'a lease expires, and the late one gives back' \
    'close 1 close 2 want 1 grant 1 want 2 lease 1 grant 2 release 1 want 1 release 2 grant 1'
accepts 'a lease expires, and the late one asks again' 'close 1 close 2 want 1 grant 1 want 2 lease 1 grant 2 want 1'
accepts 'a holder dies' 'close 1 close 2 want 1 grant 1 want 2 dead 1 grant 2'
accepts 'a want is given up' 'close 1 close 2 want 1 cancel 1 want 2 grant 2 release 2 want 1 grant 1'
accepts 'two GPUs' 'close 1 gpu=1 close 2 gpu=0 want 1 grant 1 gpu=1 want 2 grant 2'
accepts 'a new jigsawd' 'close 1 close 2 want 1 grant 1 start open 1 close 2 close 1 run 1 want 2 release 1 grant 2'

refuses 'two holders' 6 'process 1 holds' 'close 1 close 2 want 1 want 2 grant 1 grant 2'
refuses 'a grant beside one found computing' 6 'process 1 holds' 'close 2 open 1 close 1 run 1 want 2 grant 2'
refuses 'a grant beside an open gate' 4 'process 1 has an open gate' 'open 1 close 2 want 2 grant 2'
refuses 'a grant without a want' 2 'grant without a want' 'close 1 grant 1'
refuses 'a grant twice' 4 'grant without a want' 'close 1 want 1 grant 1 grant 1'
refuses 'giving back what was never had' 3 'does not hold' 'close 1 want 1 release 1'
refuses 'giving back twice' 5 'does not hold' 'close 1 want 1 grant 1 release 1 release 1'
refuses 'asking while holding' 4 'wants while it holds' 'close 1 want 1 grant 1 want 1'
refuses 'asking twice' 3 'wants while it' 'close 1 want 1 want 1'
refuses 'a lease of nobody' 2 'lease of one' 'close 1 lease 1'
refuses 'opening before the want is granted' 3 'before the pending want' 'close 1 want 1 open 1'
refuses 'closing twice' 2 'closed already' 'close 1 close 1'
refuses 'running behind an open gate' 2 'run, but' 'open 1 run 1'
refuses 'running after a turn' 6 'run, but' 'open 1 close 1 want 1 grant 1 release 1 run 1'
refuses 'a stranger' 2 'first event' 'close 1 want 2'
refuses 'the dead' 3 'first event' 'close 1 dead 1 want 1'
refuses 'a want from before the restart' 4 'first event' 'close 1 want 1 start grant 1'
refuses 'a process on two GPUs' 2 'moved from GPU 0' 'close 1 gpu=1 want 1'
refuses 'time that runs back' 2 't_ns falls' 't=9 close 1 t=3 want 1'
refuses 'an unknown event' 2 "unknown event 'hug'" 'close 1 hug 1'

for line in '' '{' 'grant 1' '[]' '{"t_ns":1}' '{"t_ns":1,"event":"close","gpu":0}' '{"t_ns":-1,"event":"start"}' \
    '{"t_ns":1,"event":"start"} x' '{"t_ns":1,"t_ns":1,"event":"start"}' '{"t_ns":{"a":1},"event":"start"}'; do
    echo "$line" >"$work/log"
    fails "refuses the line '$line'" "$replay" --allow-empty "$work/log"
done
: >"$work/log"
fails 'an empty log shows nothing' "$replay" "$work/log"
ok 'unless that is allowed' "$replay" --allow-empty "$work/log"
fails 'a log that is not there' "$replay" "$work/none"

# What the model itself does, at random. The mutant closes gates too late: some of its runs are forbidden.
simulate()
{
    $SPIN -T -n"$1" -u100000 -DLOG -DN=3 -DTURNS=6 "${@:2}" "$here/gate.pml" |
        awk '$1 == "LOG" && NF == 3 { printf "{\"t_ns\":%d,\"event\":\"start\"}\n", $2 }
             $1 == "LOG" && NF == 4 { printf "{\"t_ns\":%d,\"gpu\":0,\"event\":\"%s\",\"process\":%d}\n", $2, $3, $4 }'
}
if command -v "${SPIN%% *}" >/dev/null; then
    cd "$work" || exit 1
    refused=0
    for seed in 1 2 3 4 5 6 7 8 9 10; do
        simulate "$seed" -DKILLS -DCANCELS -DRESTART >"$work/log"
        ok "accepts run $seed of the model" "$replay" "$work/log"
        simulate "$seed" -DCLOSE_LATE >"$work/log"
        "$replay" "$work/log" >/dev/null || refused=$((refused + 1))
    done
    ok 'refuses some runs of a mutant' test "$refused" -gt 0
fi

done_testing
