# SPDX-License-Identifier: Apache-2.0
# For the tests of the SPANK plugin: a cluster whose prologs use $CLUSTER_DIR/jigsaw. With select/jigsaw where it is
# installed; what is tested here holds with Slurm's own select plugin too.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

start_spank_cluster() { # arguments of plugstack.conf, default run_dir=...
    local plugins=${JIGSAW_PLUGINS:-$(cluster_slurm_plugins)}
    [ -f "$plugins/select_jigsaw.so" ] || TEST_STOCK=1
    CLUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/jigsaw-test.XXXXXX") || bail_out "no folder"
    RUN=$CLUSTER_DIR/jigsaw
    # optional, as etc/plugstack.conf.example has it: a refusal must not depend on "required".
    CLUSTER_PLUGSTACK="optional $plugins/spank_jigsaw.so ${1:-run_dir=$RUN}"
    start_cluster
}

# The words of a job's record on a node, "" without one: request JOB [NODE]
record_field() { sed -n "s/^$2=//p" "$RUN/${3:-n1}/jobs/$1."* 2>/dev/null; }
has_record() { [ -s "$RUN/${2:-n1}/jobs/$1.${3:-0}" ] && [ -s "$RUN/${2:-n1}/tokens/$1.${3:-0}" ]; }
no_files() { ! ls "$RUN"/n*/jobs/"$1".* "$RUN"/n*/tokens/"$1".* >/dev/null 2>&1; }
# How many lines of our plugin about a job are in a node's log; waits for the first, as a job runs while its prolog does.
lines_about() { wait_for 20 grep -q "jigsaw: job $1:" "$(cluster_log "${2:-1}")"; grep -c "jigsaw: job $1:" "$(cluster_log "${2:-1}")"; }
no_node_is_down() { ! slurm sinfo -h -N -o '%T' | grep -Eiq 'down|drain|fail'; }
