#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# configure refuses a Slurm source that is not exactly the installed Slurm, and says what differs and what to do.
set -euo pipefail

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$top_srcdir/tests/lib/tap.sh"
[ -n "${SLURM_VERSION:-}" ] || skip_all 'no Slurm headers here'
top_srcdir=$(realpath "$top_srcdir")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$work/slurm
mkdir -p "$source/src/slurmctld" "$work/bin"
touch "$source/src/slurmctld/slurmctld.h"

daemon_says() { printf '#!/bin/sh\necho slurm-wlm %s\n' "$1" >"$work/bin/slurmctld"; chmod +x "$work/bin/slurmctld"; }
source_says() { printf '  Name: slurm\n  Version: %s\n' "$1" >"$source/META"; }

# try_configure ARGS...: configure without the checks that do not matter here, reusing what it learns of the compiler.
try_configure()
{
    (cd "$work" && "$top_srcdir/configure" -q \
        --cache-file="$work/cache" --without-libtorch --without-gloo --without-cuda --without-hwloc --without-yaml --without-check \
        SLURMCTLD="$work/bin/slurmctld" ${CC:+CC="$CC"} ${CXX:+CXX="$CXX"} "$@" 2>&1) || true
}

daemon_says "$SLURM_VERSION"
like 'a folder that is not there' "$(try_configure --with-slurm-source="$work/none")" "$work/none: no META"
source_says "$SLURM_VERSION"
like 'a source that was not configured' "$(try_configure --with-slurm-source="$source")" 'no config.h there; run ./configure'
touch "$source/config.h"
source_says 1.02.3
like 'a source of another version than the headers' "$(try_configure --with-slurm-source="$source")" \
    "versions differ.*is 1.02.3, the installed headers are $SLURM_VERSION"
source_says "$SLURM_VERSION"
daemon_says 1.02.3
like 'a slurmctld of another version' "$(try_configure --with-slurm-source="$source")" \
    "versions differ.*is $SLURM_VERSION, the installed slurmctld .* is 1.02.3"
daemon_says "$SLURM_VERSION"
like 'three equal versions' "$(try_configure --with-slurm-source="$source")" \
    "select and job_submit plugins +yes +$source"
done_testing
