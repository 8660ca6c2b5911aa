#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check's counting: what it adds up, and that nothing which did not run can pass for a success.
set -euo pipefail

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$top_srcdir/tests/lib/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# count RESULT[: TEXT]...: the totals for one test of the suite `abi` with these results. The log says what it says of
# skips; the rows of tests/skips are ours.
count()
{
    local result
    rm -rf "$work/build" "$work/tests"
    mkdir -p "$work/build/tests/abi" "$work/tests"
    printf '# a comment\nabi any x: no such device$\ngpu gpu .*\ngpu no-gpu .*\n' >"$work/tests/skips"
    for result in "$@"; do
        echo ":test-result: ${result%%:*}" >>"$work/build/tests/abi/x.trs"
        echo "${result%%:*}: tests/abi/x:${result#*:}" >>"$work/build/tests/abi/x.log"
    done
    echo tests/abi/x >"$work/list"
    (
        top=$work
        . "$top_srcdir/scripts/lib/say.sh"
        . "$top_srcdir/scripts/lib/results.sh"
        [ -z "${allow:-}" ] || allow_skip "$allow"
        count_suite "${suite:-abi}" "$work/build" "$work/list"
        print_totals
    )
}

is 'passes and failures are counted' "$(count PASS PASS FAIL PASS ERROR)" '3 passed, 2 failed, 0 skipped'
is 'a test that passes against expectation is a failure' "$(count XPASS)" '0 passed, 1 failed, 0 skipped'
is 'a skip that tests/skips lists is a skip' "$(count PASS 'SKIP: no such device')" '1 passed, 0 failed, 1 skipped'
is 'a skip for another reason is a failure' "$(count PASS 'SKIP: do not feel like it')" '1 passed, 1 failed, 0 skipped'
is 'another suite may not use the row' "$(suite=unit count 'SKIP: no such device')" '0 passed, 1 failed, 0 skipped'
is 'a row for one kind of machine each covers both' "$(suite=gpu count 'SKIP: anything')" '0 passed, 0 failed, 1 skipped'
is 'a run may allow a skip of its own' "$(allow='no [a-z]+ here$' count 'SKIP: no plugin here')" '0 passed, 0 failed, 1 skipped'
is 'and only that one' "$(allow='no [a-z]+ here$' count 'SKIP: no plugin')" '0 passed, 1 failed, 0 skipped'

# A test that left no results: it did not run, and neither did the suite.
is 'a test without results fails, and so does its suite' "$(count)" '0 passed, 2 failed, 0 skipped'

empty_list()
{
    (
        top=$work
        . "$top_srcdir/scripts/lib/say.sh"
        . "$top_srcdir/scripts/lib/results.sh"
        : >"$work/list"
        count_suite model "$work/build" "$work/list"
        print_totals
    )
}
is 'a suite without tests is a failure' "$(empty_list)" '0 passed, 1 failed, 0 skipped'

done_testing
