#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No script of the tree has an error or a warning from shellcheck.
set -euo pipefail

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$top_srcdir/tests/lib/tap.sh"
command -v shellcheck >/dev/null || skip_all 'shellcheck is not installed'

cd "$top_srcdir"
mapfile -t scripts < <(
    find scripts tests bench .ci runtime plugin etc -type f 2>/dev/null | sort | while read -r file; do
        case $file in
            *.sh | *.t) head -n 1 "$file" | grep -q python || echo "$file" ;;
            *.*) ;;
            *) if head -n 1 "$file" | grep -q -E '^#!.*\b(ba)?sh\b'; then echo "$file"; fi ;;
        esac
    done
)
# Sourced files are checked by themselves: where they lie is known only when the script runs (SC1090, SC1091), and what
# they set or take is for others or from them (SC2034, SC2119, SC2120, SC2154). A file without a first line for the shell is Bash.
check_script()
{
    local shell=()
    head -n 1 "$1" | grep -q '^#!' || shell=(-s bash)
    shellcheck -x -S warning -e SC1090,SC1091,SC2034,SC2119,SC2120,SC2154 "${shell[@]}" "$1"
}

for script in "${scripts[@]}"; do
    ok "$script" check_script "$script"
done

done_testing
