#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/check-release runs inside its chroot: with the network the packages and Slurm's source, then without it the
# build and the tests.
#
#   release-inside.sh prepare                                packages; prints the folder of Slurm's source as the last line
#   release-inside.sh check SOURCE-FOLDER|none SUITE...      ends with `N passed, N failed, N skipped`
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$top/scripts/lib/say.sh"
. "$top/scripts/lib/packages.sh"
. "$top/scripts/lib/slurm-source.sh"

here=/jigsaw
export JIGSAW_LOG_DIR=$here/log

prepare()
{
    local needed tree=none
    mapfile -t needed < <(build_packages no)
    need_packages "${needed[@]}" procps binutils >&2
    if [ ! -e $here/without-select ]; then
        tree=$(slurm_source "$(find $here -maxdepth 1 -name 'slurm-source.*')")
    fi
    echo "$tree"
}

# The versions that the figures of this run belong to.
say_versions()
{
    say "release: $(. /etc/os-release && echo "$PRETTY_NAME"), $(slurmctld -V), $(gcc --version | head -n 1)," \
        "$(ldd --version | head -n 1), hwloc $(pkg-config --modversion hwloc), check $(pkg-config --modversion check)"
}

check()
{
    local source=$1 suite options=()
    shift
    for suite in "$@"; do options+=(--only "$suite"); done
    say_versions
    "$top/scripts/check" --dir $here/build --no-packages --without-libtorch --slurm-source "$source" "${options[@]}"
}

case ${1:-} in
    prepare) prepare ;;
    check) shift; check "$@" ;;
    *) die "usage: release-inside.sh prepare | check SOURCE-FOLDER|none SUITE..." ;;
esac
