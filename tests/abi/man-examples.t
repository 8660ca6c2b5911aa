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
# The .pc files as installed, but for where they point: this build.
flags_of() { PKG_CONFIG_PATH=$top_builddir/runtime pkg-config --define-variable=libdir="$top_builddir/.libs" --define-variable=includedir="$top_srcdir/runtime/include" --cflags --libs "$1"; }
by_pkg_config() { # MODULE SOURCE COMPILER...
    local module=$1 source=$2 flags
    shift 2
    flags=$(flags_of "$module") || return 1
    # shellcheck disable=SC2086
    "$@" -o "$work/by-pc" "$source" $flags $sanitize && run "$work/by-pc"
}
if command -v pkg-config >/dev/null; then
    # shellcheck disable=SC2086
    ok "jigsaw.pc has the flags" by_pkg_config jigsaw "$work/jigsaw.c" ${CC%% *} -std=c11
    if [ -e "$top_builddir/libjigsaw_torch.la" ]; then
        printf '#include <jigsaw/torch.hpp>\nint main() { jigsaw::torch::Options options; return options.rank == 77; }\n' >"$work/torch.cpp"
        # shellcheck disable=SC2086
        ok "jigsaw_torch.pc has the flags" by_pkg_config jigsaw_torch "$work/torch.cpp" ${CXX%% *} -std=c++17
    fi
fi
ok "every function has a page" described
ok "jigsaw.3 lists every result with its text" results_described
echo "1..$number"
exit $failed
