#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the Python package costs at full depth, against DistributedDataParallel of the same torch in the same run, and alone against a
# plain loop: see ddp.py. It needs a python3 with PyTorch (JIGSAW_TEST_PYTHON, /usr/bin/python3 or the configured one).
#
# Usage: scripts/bench ddp [--ranks N] [--pairs N] [--iterations N] [MODEL...]      models: mlp cnn transformer
set -euo pipefail

# Speaks TAP where something is missing; here that goes to stderr, and there is nothing to measure.
# shellcheck source=tests/python/lib.sh
. "$top_srcdir/tests/python/lib.sh" >&2
ranks=2
[ "${1:-}" != --ranks ] || { ranks=$2; shift 2; }
timeout 900 "$python" "$top_srcdir/bench/ddp.py" "$@"
timeout 900 "$python" -m torch.distributed.run --redirects 9:1 --tee 9:1 --nproc_per_node="$ranks" \
    --master_port="$(free_port)" "$top_srcdir/bench/ddp.py" "$@"
