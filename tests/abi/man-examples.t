#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example of each manual page of section 3 compiles without a warning, links with libjigsaw and runs as one rank; and the
# pages speak of every function and every result.
set -uo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0 failed=0
ok() { # NAME COMMAND...
    local name=$1
    shift
    number=$((number + 1))
    if "$@" >"$work/out" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$work/out"
        failed=1
    fi
}
example_of() { # the lines between .EX and .EE after .SH EXAMPLES, with troff's escapes undone
    sed -n '/^\.SH EXAMPLES/,$ { /^\.EX/,/^\.EE/ { /^\.E[EX]/d; s/\\e/\\/g; s/\\-/-/g; s/\\&//g; p } }' "$1"
}
sanitize=$(sed -n 's/^JIGSAW_SANITIZE = //p' "$top_builddir/Makefile")
compile() {
    # shellcheck disable=SC2086
    $CC -std=c11 -Wall -Wextra -Werror $sanitize -I "$top_srcdir/runtime/include" -o "$2" "$1" -L "$top_builddir/.libs" -ljigsaw
}
run() { env -u JIGSAW_SOCKET RANK=0 WORLD_SIZE=1 LD_LIBRARY_PATH="$top_builddir/.libs" "$1"; }

pages=("$top_srcdir"/man/man3/*.3)
for page in "${pages[@]}"; do
    name=$(basename "$page" .3)
    example_of "$page" >"$work/$name.c"
    ok "$name: there is an example" grep -q 'int main' "$work/$name.c"
    ok "$name: it compiles" compile "$work/$name.c" "$work/$name"
    ok "$name: it runs" run "$work/$name"
done
functions=$(sed -n 's/^[a-z].*[ *]\(jigsaw_[a-z_]*\)(.*/\1/p' "$top_srcdir/runtime/include/jigsaw/jigsaw.h" | sort -u)
described() {
    local function missing=0
    for function in $functions; do
        grep -qh -- "$function" "${pages[@]}" || { echo "$function is in no page"; missing=1; }
    done
    return $missing
}
results_described() {
    local name number_ text missing=0
    while IFS=, read -r name number_ text; do
        text=${text# } text=${text//\"/}
        grep -q "^\.B JIGSAW_$name$" "$top_srcdir/man/man3/jigsaw.3" && grep -qF -- "$text" "$top_srcdir/man/man3/jigsaw.3" ||
            { echo "JIGSAW_$name,$number_ ($text) is not in jigsaw.3"; missing=1; }
    done < <(sed -n 's/^ *X(\([A-Z_]*\), *\([0-9]*\), *\("[^"]*"\)).*/\1,\2,\3/p' "$top_srcdir/runtime/include/jigsaw/jigsaw.h")
    return $missing
}
ok "every function has a page" described
ok "jigsaw.3 lists every result with its text" results_described
echo "1..$number"
exit $failed
