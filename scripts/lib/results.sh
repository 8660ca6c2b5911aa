# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Counting what Automake's test driver left: NAME.trs holds one result per TAP line, NAME.log the text.
# Sourced after say.sh; $top is the source tree.
#
#   count_suite SUITE BUILD TESTS-FILE      adds the results of these tests to the totals
#   allow_skip PATTERN                      this run may skip what matches, whatever tests/skips says
#   fail_suite SUITE TEXT [LOG]             one failure that no test reports by itself
#   print_failures; print_totals

passed=0
failed=0
skipped=0
failures=()     # "what<TAB>log"
allowed_skips=()

machine_kind()
{
    if [ -e /dev/nvidia0 ] || [ -e /dev/nvidiactl ]; then echo gpu; else echo no-gpu; fi
}

fail_suite()
{
    failed=$((failed + 1))
    failures+=("$1: $2"$'\t'"${3:-}")
}

allow_skip() { allowed_skips+=("$1"); }

# skip_allowed SUITE TEXT: did allow_skip, or does a row of tests/skips cover it?
skip_allowed()
{
    local suite machine pattern kind
    for pattern in ${allowed_skips[@]+"${allowed_skips[@]}"}; do
        if [[ $2 =~ $pattern ]]; then return 0; fi
    done
    kind=$(machine_kind)
    # shellcheck disable=SC2154 # top is set by the script
    while read -r suite machine pattern; do
        case $suite in '' | '#'*) continue ;; esac
        [ "$suite" = "$1" ] || continue
        [ "$machine" = any ] || [ "$machine" = "$kind" ] || continue
        if [[ $2 =~ $pattern ]]; then return 0; fi
    done <"$top/tests/skips"
    return 1
}

count_skips()
{
    local suite=$1 test=$2 log=$3 count=$4 line found=0
    while read -r line; do
        found=$((found + 1))
        if skip_allowed "$suite" "$line"; then
            skipped=$((skipped + 1))
        else
            fail_suite "$suite" "skipped, and tests/skips does not allow it on a $(machine_kind) machine: $line" "$log"
        fi
    done < <(sed -n -E 's/^(SKIP|XFAIL): //p' "$log")
    [ "$found" -eq "$count" ] ||
        fail_suite "$suite" "$test reports $count skips, its log explains $found" "$log"
}

# count_test SUITE BUILD TEST: returns how many results it had in $results.
count_test()
{
    local suite=$1 build=$2 test=$3 base trs log bad skips
    base=$build/${test%.t}
    trs=$base.trs
    log=$base.log
    results=0
    if [ ! -e "$trs" ]; then
        fail_suite "$suite" "$test did not run" "$log"
        return
    fi
    results=$(grep -c '^:test-result:' "$trs" || true)
    passed=$((passed + $(grep -c '^:test-result: PASS' "$trs" || true)))
    bad=$(grep -c -E '^:test-result: (FAIL|ERROR|XPASS)' "$trs" || true)
    skips=$(grep -c -E '^:test-result: (SKIP|XFAIL)' "$trs" || true)
    if [ "$bad" -gt 0 ]; then
        failed=$((failed + bad))
        failures+=("$suite: $test: $bad of $results"$'\t'"$log")
    fi
    [ "$results" -gt 0 ] || fail_suite "$suite" "$test reported nothing" "$log"
    [ "$skips" -eq 0 ] || count_skips "$suite" "$test" "$log" "$skips"
}

count_suite()
{
    local suite=$1 build=$2 list=$3 test total=0
    while read -r test; do
        count_test "$suite" "$build" "$test"
        total=$((total + results))
    done <"$list"
    [ "$total" -gt 0 ] || fail_suite "$suite" "the suite ran no test"
    # shellcheck disable=SC2034 # for the caller
    suite_results=$total
}

print_failures()
{
    local entry what log
    for entry in ${failures[@]+"${failures[@]}"}; do
        what=${entry%%$'\t'*}
        log=${entry#*$'\t'}
        printf '\n---- failed: %s\n' "$what"
        if [ -n "$log" ] && [ -e "$log" ]; then
            printf '     %s\n' "$log"
            grep -v '^PASS: ' "$log" | tail -n 60
        fi
    done
    return 0
}

print_totals() { printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"; }
