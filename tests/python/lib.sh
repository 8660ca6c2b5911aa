# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For the tests of the Python package: a Python that has PyTorch, and this tree's package and library. Sourced.
#
#   python                  the interpreter, or the script ends: skipped, with the reason
#   run_torchrun OPTION... FILE
#   run_python FILE ARG...  runs tests/python/FILE, which speaks TAP
#   start_rank ENV... -- FILE ARG...   a process in the background: pids[]

# A configured python3 may be one without torch (pyenv's shims): Debian's is asked too.
find_python()
{
    local candidate
    for candidate in "${JIGSAW_TEST_PYTHON:-}" /usr/bin/python3 "${PYTHON:-}"; do
        [ -n "$candidate" ] && [ "$candidate" != : ] || continue
        if "$candidate" -c 'import torch, torch.distributed.run' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

python=$(find_python) || {
    echo "1..0 # SKIP no python3 here has PyTorch (apt install python3-torch, or JIGSAW_TEST_PYTHON=...)"
    exit 0
}
[ -e "$top_builddir/.libs/libjigsaw.so.0" ] || { echo "Bail out! $top_builddir/.libs/libjigsaw.so.0 is not built"; exit 1; }

export PYTHONPATH=$top_srcdir/runtime/python JIGSAW_LIBRARY=$top_builddir/.libs/libjigsaw.so.0
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
unset JIGSAW_SOCKET RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_JOB_ID

# A build with sanitizers needs their libraries in the process before anything else; leaks are Python's own.
sanitize=$(sed -n 's/^JIGSAW_SANITIZE = //p' "$top_builddir/Makefile")
preload=
for library in asan:address ubsan:undefined stdc++:address; do
    case $sanitize in *"${library#*:}"*) preload+=" $(${CC:-cc} -print-file-name="lib${library%:*}.so")" ;; esac
done
[ -z "$preload" ] || export LD_PRELOAD="${preload# }" ASAN_OPTIONS=detect_leaks=0

here=$top_srcdir/tests/python
run_python() { local file=$1; shift; timeout 120 "$python" "$here/$file" "$@"; }
# Debian's torch 1.13 with Python 3.11 knows no redirection "0", torchrun's default: one for a rank that is not there stands for it.
run_torchrun()
{
    timeout 100 "$python" -m torch.distributed.run --redirects 9:1 --tee 9:1 --master_port="$(free_port)" "$@"
}
free_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
