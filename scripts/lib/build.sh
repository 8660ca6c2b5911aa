# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Building JigSaw from its source tree, incrementally. Sourced after say.sh; $top is the source tree.
#
#   make_configure LOG-FOLDER              autoreconf when configure is older than what it is made of
#   configure_in BUILD ARGS...             configure when its arguments or its source changed
#   make_in BUILD TARGET...                make with one job per core

jobs() { nproc 2>/dev/null || echo 2; }

# The compilers: the user's; through ccache where there is one.
compilers()
{
    local cache=
    command -v ccache >/dev/null && cache='ccache '
    echo "CC=${CC:-${cache}gcc}"
    echo "CXX=${CXX:-${cache}g++}"
}

# configure lies beside its source and is not kept in git. Fragments need no care: make knows them.
make_configure()
{
    local newest
    # shellcheck disable=SC2154 # top is set by the script
    if [ -x "$top/configure" ] && [ -e "$top/Makefile.in" ] && [ -e "$top/build-aux/depcomp" ]; then
        newest=$(find "$top/configure.ac" "$top/m4" -name '*.[am][c4]*' -newer "$top/configure" | head -n 1)
        [ -n "$newest" ] || return 0
    fi
    say "autoreconf: making configure"
    run_logged "$1/autoreconf.log" autoreconf -fi "$top" || die "autoreconf failed; its log: $1/autoreconf.log"
}

configure_in()
{
    local build=$1 args
    shift
    mapfile -t args < <(compilers)
    args+=("$@")
    mkdir -p "$build"
    if [ -e "$build/config.status" ] && [ "$build/config.status" -nt "$top/configure" ] &&
        [ "$(cat "$build/configure.args" 2>/dev/null)" = "$top ${args[*]}" ]; then
        return 0
    fi
    say "configure: $build ${*}"
    rm -f "$build/configure.args"
    run_logged "$build/configure.log" env -C "$build" "$top/configure" "${args[@]}" ||
        die "configure failed; its log: $build/configure.log"
    echo "$top ${args[*]}" >"$build/configure.args"
    sed -n '/will build:/,$p' "$build/configure.log"
}

make_in()
{
    local build=$1
    shift
    say "make: ${*:-all} in $build"
    run_logged "$build/make.log" make -C "$build" -j"$(jobs)" "$@" || die "make failed; its log: $build/make.log"
}
