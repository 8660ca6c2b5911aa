#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# 2 ranks under torchrun on loopback, Gloo: see ranks.py.
set -uo pipefail

. "$top_srcdir/tests/python/lib.sh"
run_torchrun --nproc_per_node=2 "$here/ranks.py"
