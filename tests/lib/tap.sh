# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# TAP for test scripts. Sourced.
#
#   ok DESCRIPTION COMMAND...        one result: passes if the command does
#   fails DESCRIPTION COMMAND...     passes if the command fails
#   is DESCRIPTION GOT WANTED        compares two texts
#   like DESCRIPTION TEXT REGEX      an extended regular expression
#   skip_all REASON                  instead of any result; ends the script
#   done_testing                     the plan; the last line of every script

tap_count=0
tap_failed=0

tap_result()
{
    local verdict=$1
    shift
    tap_count=$((tap_count + 1))
    [ "$verdict" = ok ] || tap_failed=$((tap_failed + 1))
    echo "$verdict $tap_count - $*"
}

# What a command prints goes to the log as comments, or the driver would take it for results.
ok()
{
    local description=$1 output
    shift
    if output=$("$@" 2>&1); then
        tap_result ok "$description"
    else
        tap_result 'not ok' "$description"
        printf '%s\n' "command: $*" "$output" | sed 's/^/# /'
    fi
}

fails()
{
    local description=$1
    shift
    ok "$description" tap_not "$@"
}

tap_not()
{
    if "$@"; then return 1; fi
    return 0
}

is()
{
    local description=$1 got=$2 wanted=$3
    if [ "$got" = "$wanted" ]; then
        tap_result ok "$description"
    else
        tap_result 'not ok' "$description"
        printf 'got:    %s\nwanted: %s\n' "$got" "$wanted" | sed 's/^/# /'
    fi
}

like()
{
    local description=$1 text=$2 pattern=$3
    if [[ $text =~ $pattern ]]; then
        tap_result ok "$description"
    else
        tap_result 'not ok' "$description"
        printf '%s\ndoes not match: %s\n' "$text" "$pattern" | sed 's/^/# /'
    fi
}

skip_all()
{
    echo "1..0 # SKIP $*"
    exit 0
}

done_testing()
{
    echo "1..$tap_count"
    [ "$tap_count" -gt 0 ] && [ "$tap_failed" -eq 0 ]
}
