#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# jigsaw-partition as a user runs it: a partition and its report, JSON, the same answer twice, and one clear line and no
# file for each mistake.
set -euo pipefail

. "$top_srcdir/tests/lib/tap.sh"
program=$top_builddir/runtime/sparse/jigsaw-partition
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
quick=(--effort 0.05 --quiet)
says() { "$program" "$@" 2>&1 || true; }
status_of() { local status=0; "$program" "$@" >/dev/null 2>&1 || status=$?; echo "$status"; }

like 'help' "$(says --help)" '^usage: jigsaw partition --parts N'
like 'version' "$(says --version)" '^jigsaw-partition [0-9]'

# Two dense blocks of four neurons, twice: two parts need no words.
mkdir "$dir/net"
for layer in 1 2; do
    for i in 1 2 3 4 5 6 7 8; do
        for j in 1 2 3 4 5 6 7 8; do
            [ $((i % 2)) -ne $((j % 2)) ] || printf '%d\t%d\t0.5\n' "$i" "$j"
        done
    done >"$dir/net/neuron8-l$layer.tsv"
done
report=$(says --parts 2 --output "$dir/p" "${quick[@]}" "$dir/net")
like 'blocks are found' "$report" 'jigsaw +0 +0\.0 +0 +0 +0 +0\.00'
like 'contiguous is told beside it' "$report" 'contiguous +16 '
like 'and random' "$report" 'random +[0-9]+ +100\.0 '
is 'the file is a partition of the network' "$(says --measure "$dir/p" --json "$dir/net" | "$PYTHON" -c '
import json, sys
report = json.load(sys.stdin)
part = report["partition"]
print(part["volume_words"], report["parts"], len(part["layers"]), part["matrix"])')" '0 2 2 [[0, 0], [0, 0]]'

radix=(--generate radix:256:6 --parts 4 "${quick[@]}")
is 'JSON adds up' "$(says "${radix[@]}" --json -o "$dir/a" | "$PYTHON" -c '
import json, sys
report = json.load(sys.stdin)
part = report["partition"]
total = sum(layer["volume_words"] for layer in part["layers"])
print(total == part["volume_words"] == sum(map(sum, part["matrix"])), part["imbalance"] == 0,
      part["volume_words"] < report["random"]["volume_words"], report["seconds"] >= 0)')" 'True True True True'
says "${radix[@]}" -o "$dir/b" >/dev/null
ok 'the same seed, the same partition' cmp "$dir/a" "$dir/b"
says "${radix[@]}" --seed 2 -o "$dir/b" >/dev/null
fails 'another seed, another one' cmp "$dir/a" "$dir/b"
like 'without an output there is a report only' "$(says "${radix[@]}" --backward --one-phase --no-merge)" 'jigsaw +[0-9]+ '
ok 'jigsaw starts it' test -x "$program"
if [ -x "$top_builddir/plugin/cli/jigsaw" ]; then
    like 'jigsaw partition is this program' \
        "$(JIGSAW_EXEC_PATH=$(dirname "$program") "$top_builddir/plugin/cli/jigsaw" partition --help)" '^usage: jigsaw partition'
fi

# A mistake: one line that names it, a status that is not 0, nothing written.
rm -f "$dir/out"
mistake()
{
    local description=$1 pattern=$2 status=$3
    shift 3
    local text
    text=$(says "$@")
    like "$description" "$text" "^jigsaw-partition: $pattern"
    is "$description: one line" "$(printf '%s\n' "$text" | wc -l)" 1
    is "$description: status, files" "$(status_of "$@") $(ls "$dir"/out* 2>/dev/null)" "$status "
}
printf '1 2 0.5\n1 9 0.5\n' >"$dir/net/neuron8-l2.tsv"
mistake 'a broken layer' '.*/neuron8-l2.tsv:2: the output is "9"' 1 --parts 2 -o "$dir/out" "$dir/net"
mistake 'no such network' '.*/none: No such file' 1 --parts 2 -o "$dir/out" "$dir/none"
mistake 'a folder that is not there' '.*/none/out: cannot be created: No such file' 1 "${radix[@]}" -o "$dir/none/out"
mistake 'a partition of another network' '.*' 1 --measure "$dir/p" --generate radix:256:6
mistake 'no network' 'no network is given' 2 --parts 2 -o "$dir/out"
mistake 'no parts' '--parts is missing' 2 "$dir/net" -o "$dir/out"
mistake 'no number' '--parts takes a number, not "two"' 2 --parts two "$dir/net" -o "$dir/out"
mistake 'no parts at all' 'the number of parts is 0' 1 --generate radix:256:6 --parts 0 -o "$dir/out"
mistake 'a negative number' '--parts takes a number, not "-1"' 2 --parts=-1 "$dir/net" -o "$dir/out"
mistake 'a negative imbalance' 'the imbalance is -0' 1 "${radix[@]}" --imbalance -0.5 -o "$dir/out"
mistake 'an unknown option' 'unknown option "--nonsense"' 2 --nonsense "$dir/net"
mistake 'an option without a value' 'option "--parts" needs a value' 2 "$dir/net" --parts
mistake 'no such generator' '--generate takes radix' 2 --parts 2 --generate ring:8
done_testing
