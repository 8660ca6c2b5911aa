# SPDX-License-Identifier: Apache-2.0
# For tests in which real training processes share GPUs: a cluster with jigsawd on every node, and toy_train jobs.
#
#   . "$(dirname "$0")/runtime.sh"
#   start_shared_cluster            # 2 nodes, 1 GPU each, jigsawd on both
#   a=$(toy a --spb=2 -- --iterations 500)
#   ok "a ends well" ended_well "$a" a
#
# toy NAME SBATCH-OPTIONS -- TOY-OPTIONS: a job of two ranks, one on each node; output in $CLUSTER_DIR/out/NAME.out, metrics
# in NAME-rank<r>.jsonl, the open iteration of a rank in NAME-at<r>. toy_pid NAME RANK; reached NAME RANK ITERATION.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$here/../../scripts/lib/agents.sh"

: "${top_builddir:=$here/../../build}"
PREFIX=${JIGSAW_PREFIX:-/usr/local} # where `make install` put jigsawd and libjigsaw
REPLAY=$top_builddir/tests/model/replay
AGENT_BIN=$PREFIX/sbin/jigsawd
CLUSTER_NODES=2 CLUSTER_GPUS=1 CLUSTER_CPUS=8

_stop_all() {
    local status=$?
    agents_stop 2>/dev/null
    (exit "$status")
    _at_exit
}

start_shared_cluster() {
    local toy=$top_builddir/tests/integration/toy_train
    [ ! -x "${toy%/*}/.libs/toy_train" ] || toy=${toy%/*}/.libs/toy_train # the program itself, not libtool's wrapper
    [ -x "$toy" ] || skip_all "toy_train is not built in $top_builddir (make check-programs)"
    [ -x "$AGENT_BIN" ] || skip_all "$AGENT_BIN is missing (make install, or set JIGSAW_PREFIX)"
    CLUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/jigsaw-test.XXXXXX") || bail_out "no folder"
    CLUSTER_PLUGSTACK="required $(plugin_folder)/spank_jigsaw.so run_dir=$CLUSTER_DIR/jigsaw"
    start_cluster
    trap _stop_all EXIT
    # Other users run it too, and cannot look into a build tree in someone's home.
    mkdir -p "$CLUSTER_DIR/out" "$CLUSTER_DIR/bin"
    chmod 755 "$CLUSTER_DIR" "$CLUSTER_DIR/bin"
    chmod 1777 "$CLUSTER_DIR/out"
    install -m 755 "$toy" "$CLUSTER_DIR/bin/toy_train"
    TOY="env LD_LIBRARY_PATH=$PREFIX/lib $CLUSTER_DIR/bin/toy_train"
    agents_start >&2 || bail_out "jigsawd does not start"
}

plugin_folder() { echo "${JIGSAW_PLUGINS:-${JIGSAW_PLUGINDIR:-$(cluster_slurm_plugins)}}"; }

toy() {
    local name=$1 out=$CLUSTER_DIR/out options=()
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    rm -f "$out/$name"[-.]*
    slurm sbatch --parsable --job-name="$name" -N2 -n2 --ntasks-per-node=1 --gres=gpu:1 -o "$out/$name.out" "${options[@]}" \
        --wrap "export MASTER_ADDR=127.0.0.1; exec srun --kill-on-bad-exit=0 $TOY --metrics $out/$name-rank{rank}.jsonl --progress $out/$name-at{rank} $*"
}
toy_at() { local at; at=$(cat "$CLUSTER_DIR/out/$1-at$2" 2>/dev/null); echo "${at:--1}"; }
_reached() { [ "$(toy_at "$1" "$2")" -ge "$3" ] 2>/dev/null; }
reached() { wait_for "${REACH_S:-60}" _reached "$@"; }
_command_of() { { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null; }
# The training process of a rank, not its forked children.
toy_pid() {
    local entry
    for entry in /proc/[0-9]*; do
        { tr '\0' '\n' <"$entry/environ" | grep -qx "SLURM_PROCID=$2"; } 2>/dev/null || continue
        _command_of "${entry#/proc/}" | grep -q "^[^ ]*bin/toy_train .*/out/$1-" || continue
        _command_of "$(awk '/^PPid/ { print $2 }' "$entry/status" 2>/dev/null)" | grep -q 'bin/toy_train' && continue
        echo "${entry#/proc/}"
        return 0
    done
    return 1
}
step_pid() { # slurmstepd of the training step of job JOB on node n1
    local entry
    for entry in /proc/[0-9]*; do
        _command_of "${entry#/proc/}" | grep -q "^slurmstepd: \[$1\.0\]" && { echo "${entry#/proc/}"; return 0; }
    done
    return 1
}
ended_well() { # JOB NAME
    wait_for 180 job_over "$1" && job_is "$1" COMPLETED && [ "$(grep -c 'parameters are right' "$CLUSTER_DIR/out/$2.out")" = 2 ] && return 0
    say "job $1 ($2) is $(job_field "$1" JobState); its output:"
    tail -n 8 "$CLUSTER_DIR/out/$2.out" | sed 's/^/#   /' >&3
    return 1
}
output_says() { wait_for "${SAYS_S:-20}" grep -Eq "$2" "$CLUSTER_DIR/out/$1.out"; }
agent_says() { wait_for 10 grep -Eq "$2" "$(agent_log "$1")"; }
records_gone() { # nothing of a job is left on a node
    [ -z "$(find "$(agent_run_dir)" -name "$1.*" 2>/dev/null)" ]
}
replay_accepts() { "$REPLAY" "$(agent_trace "$1")" >&2; }
