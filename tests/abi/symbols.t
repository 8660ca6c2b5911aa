#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What libjigsaw exports is what <jigsaw/jigsaw.h> declares and libjigsaw.map lists: no more, no less.
set -uo pipefail

declared=$(sed -n 's/^[a-z].*[ *]\(jigsaw_[a-z_]*\)(.*/\1/p' "$top_srcdir/runtime/include/jigsaw/jigsaw.h" | sort -u)
listed=$(sed -n 's/^ *\(jigsaw_[a-z_]*\);.*/\1/p' "$top_srcdir/runtime/capi/libjigsaw.map" | sort -u)
exported=$(nm -D --defined-only "$top_builddir/.libs/libjigsaw.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 } $2 !~ /[TA]/ { print "data:" $3 }' | sort -u)

number=0 failed=0
same() { # NAME A B
    number=$((number + 1))
    if [ -n "$2" ] && [ "$2" = "$3" ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        diff <(echo "$2") <(echo "$3") | sed 's/^/# /'
        failed=1
    fi
}
same "the map lists what the header declares" "$declared" "$listed"
same "the library exports what the map lists" "$listed" "$exported"
number=$((number + 1))
if readelf -d "$top_builddir/.libs/libjigsaw.so" | grep -E 'NEEDED.*(torch|cuda|nccl|slurm)'; then
    echo "not ok $number - libjigsaw needs no LibTorch, CUDA or Slurm"
    failed=1
else
    echo "ok $number - libjigsaw needs no LibTorch, CUDA or Slurm"
fi
echo "1..$number"
exit $failed
