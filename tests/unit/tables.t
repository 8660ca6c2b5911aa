#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the tree says about keys and options is what the tables say.
set -u
gen=$top_builddir/plugin/config/gen_tables
number=0 failed=0

same() { # NAME EXPECTED-FILE ACTUAL-FILE
    number=$((number + 1))
    if [ -s "$2" ] && cmp -s "$2" "$3"; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1 is not what the tables say; run make update-tables"
        diff "$2" "$3" | head -20 | sed 's/^/# /'
        failed=1
    fi
}

table() { # FILE: the lines between its marks
    sed -n '/^\.\\" begin table$/,/^\.\\" end table$/{/^\.\\" .* table$/d;p}' "$1"
}

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
echo 1..4
for what in example man-config man-options; do
    "$gen" $what >"$dir/$what" || { echo "Bail out! gen_tables $what failed"; exit 1; }
done
same "etc/jigsaw.yaml.example" "$dir/example" "$top_srcdir/etc/jigsaw.yaml.example"
table "$top_srcdir/man/man5/jigsaw.yaml.5" >"$dir/config.5"
same "jigsaw.yaml(5)" "$dir/man-config" "$dir/config.5"
table "$top_srcdir/man/man7/jigsaw-spb.7" >"$dir/spb.7"
same "jigsaw-spb(7)" "$dir/man-options" "$dir/spb.7"

"$gen" nothing >"$dir/out" 2>"$dir/usage" && failed=1
grep -q usage: "$dir/usage" && echo "ok 4 - gen_tables refuses an unknown word" || { echo "not ok 4 - gen_tables refuses an unknown word"; failed=1; }
exit $failed
