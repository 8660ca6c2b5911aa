#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The two examples: five lines apart, and both learn.
set -uo pipefail

. "$top_srcdir/tests/lib/tap.sh"
. "$top_srcdir/tests/python/lib.sh"

examples=$top_srcdir/runtime/examples/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Indentation and the first comment aside.
changes=$(diff -w <(sed '/^"""/d' "$examples/train_stock.py") <(sed '/^"""/d' "$examples/train_jigsaw.py") | grep '^[<>]')
is "five lines are added" "$(grep -c '^>' <<<"$changes")" 5
is "none is changed" "$(grep -c '^<' <<<"$changes")" 0

at_least_95() { awk '$1 == "accuracy" { n++; bad += $2 < 95 } END { exit !(n > 0 && !bad) }' "$1"; }
timeout 120 "$python" "$examples/train_stock.py" 6 >"$work/stock" 2>&1
ok "the stock loop learns" at_least_95 "$work/stock"
timeout 120 "$python" "$examples/train_jigsaw.py" 6 >"$work/alone" 2>&1
is "alone, ours is the same to the digit" "$(cat "$work/alone")" "$(cat "$work/stock")"
run_torchrun --nproc_per_node=2 "$examples/train_jigsaw.py" 6 >"$work/two" 2>&1
ok "two ranks under torchrun learn" at_least_95 "$work/two"
# Two processes write to one file: a line of one may begin in a line of the other.
accuracies() { grep -o 'accuracy [0-9.]*' "$work/two"; }
is "both to the same accuracy" "$(accuracies | wc -l) $(accuracies | sort -u | wc -l)" "2 1"
done_testing
