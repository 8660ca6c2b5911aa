#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One process, as on a laptop: see single.py.
set -uo pipefail

. "$top_srcdir/tests/python/lib.sh"
run_python single.py
