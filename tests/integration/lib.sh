# SPDX-License-Identifier: Apache-2.0
# What an integration test is made of. Sourced by bash; a test looks like this:
#
#     #!/bin/bash
#     . "$(dirname "$0")/lib.sh"
#     CLUSTER_NODES=2 CLUSTER_GPUS=4
#     start_cluster                       # select/jigsaw and the SPANK options; skips or bails out by itself
#     job=$(submit --spb --gres=gpu:2)
#     ok "it runs" wait_for 20 job_is "$job" RUNNING
#     is "GPUs" "$(job_gpus "$job" n1)" 0-1
#     done_testing                        # the number of tests, and exit status
#
# Helpers: those of scripts/lib/cluster.sh, and
#   ok TEXT CMD...        passes when the command succeeds;  nok TEXT CMD...  when it fails
#   is TEXT GOT WANT      like TEXT GOT REGEX
#   skip_all REASON       the whole file is skipped
#   submit ARGS           sbatch of a job that sleeps until cancelled; prints its id (SUBMIT_WRAP: another command)
#   settle                returns after the scheduler has looked at everything submitted so far
#   no_errors             slurmctld logged no error and no underflow (lines that match ALLOW_ERRORS are expected)
#
# The cluster's ports: TEST_PORT (17100) and up; its folder: a new one under TMPDIR, removed when all tests passed.
# Our plugins: JIGSAW_PLUGINS or JIGSAW_PLUGINDIR, a folder; by default Slurm's own, where `make install` puts them.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../scripts/lib/cluster.sh"

TEST_COUNT=0 TEST_FAILED=0
# What a healthy controller logs here: a Debian Slurm without PMIx, a first start without state, a client that hung up.
ALLOW_ERRORS='Zero Bytes were transmitted|Socket timed out on send|High latency for 1000 calls|mpi/pmix|MPI: Cannot create|Could not open .* state file|Trying backup state save file'
CLUSTER_PORT=${TEST_PORT:-17100}
exec 3>&1 # TAP goes here; whatever tests print to stdout of their own goes to stderr
say() { printf '# %s\n' "$*" >&3; }

_result() { # STATUS TEXT
    TEST_COUNT=$((TEST_COUNT + 1))
    if [ "$1" = 0 ]; then
        echo "ok $TEST_COUNT - $2" >&3
    else
        TEST_FAILED=$((TEST_FAILED + 1))
        echo "not ok $TEST_COUNT - $2" >&3
    fi
}
ok() { local text=$1; shift; "$@" >/dev/null; _result $? "$text"; }
nok() { local text=$1; shift; if "$@" >/dev/null; then _result 1 "$text"; else _result 0 "$text"; fi; }
is() {
    [ "$2" = "$3" ] && { _result 0 "$1"; return; }
    _result 1 "$1"
    say "got:  $2"
    say "want: $3"
}
like() {
    [[ $2 =~ $3 ]] && { _result 0 "$1"; return; }
    _result 1 "$1"
    say "got:  $2"
    say "want: $3"
}
skip_all() { echo "1..0 # SKIP $*" >&3; exit 0; }
bail_out() { echo "Bail out! $*" >&3; exit 1; }

done_testing() {
    echo "1..$TEST_COUNT" >&3
    [ "$TEST_FAILED" = 0 ] && [ "$TEST_COUNT" -gt 0 ]
    exit $?
}

_at_exit() {
    local status=$?
    cluster_stop
    if [ "$status" = 0 ] && [ -z "${TEST_KEEP:-}" ]; then
        rm -rf "$CLUSTER_DIR"
    elif [ -f "${CLUSTER_DIR:-/nonexistent}/log/slurmctld.log" ]; then
        say "logs: $CLUSTER_DIR"
        tail -n 40 "$CLUSTER_DIR/log/slurmctld.log" | sed 's/^/# slurmctld: /' >&3
    fi
    exit "$status"
}

_plugins() {
    CLUSTER_PLUGINS=${JIGSAW_PLUGINS:-${JIGSAW_PLUGINDIR:-$(cluster_slurm_plugins)}}
    [ -f "$CLUSTER_PLUGINS/$1" ] || skip_all "$1 is not in $CLUSTER_PLUGINS (make install, or set JIGSAW_PLUGINS)"
}

# The program slurm_client.c, where there are a compiler ($CC) and libslurm's headers; then it must compile.
have_libslurm() { command -v "${CC%% *}" >/dev/null && echo '#include <slurm/slurm.h>' | $CC -E -o /dev/null - 2>/dev/null; }
build_client() { $CC -o "$1" "$here/slurm_client.c" -lslurm >&2; }

# Start a cluster with select/jigsaw (unless CLUSTER_SELECT says otherwise) and our SPANK options.
start_cluster() {
    [ "$(id -u)" = 0 ] || skip_all "needs root"
    [ -x /usr/sbin/slurmctld ] && [ -x /usr/sbin/munged ] || skip_all "needs Slurm and munge"
    _plugins spank_jigsaw.so
    [ "$CLUSTER_SELECT" != select/cons_tres ] || [ -n "${TEST_STOCK:-}" ] || CLUSTER_SELECT=select/jigsaw
    [ -n "${TEST_STOCK:-}" ] || _plugins "${CLUSTER_SELECT/\//_}.so"
    : "${CLUSTER_PLUGSTACK:=optional $CLUSTER_PLUGINS/spank_jigsaw.so}"
    [ "$CLUSTER_PLUGINS" != "$(cluster_slurm_plugins)" ] || CLUSTER_PLUGINS=
    # A test that needs its name earlier (for run_dir= in plugstack.conf) has made it already.
    [ -n "${CLUSTER_DIR:-}" ] || CLUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/jigsaw-test.XXXXXX") || bail_out "no folder"
    trap _at_exit EXIT
    trap 'exit 130' INT TERM
    cluster_start >&2 || bail_out "the cluster does not start"
}

# Submit a job that runs until it is cancelled.
submit() {
    slurm sbatch --parsable -o /dev/null --job-name=t "$@" --wrap "${SUBMIT_WRAP:-exec sleep 600}"
}
cancel() {
    local job
    slurm scancel "$@"
    for job in "$@"; do wait_for 20 job_over "$job" || return 1; done
}
job_over() { case $(job_field "$1" JobState) in COMPLETED | CANCELLED | FAILED | TIMEOUT | PREEMPTED | NODE_FAIL | '') true ;; *) false ;; esac; }
running() { wait_for 20 job_is "$1" RUNNING; }

# The scheduler has seen everything: a tiny job without GPU and of the least priority has been started and has ended.
# (Backfill looks at jobs by priority, so whatever waits now was looked at and found not to fit.)
settle() {
    local job
    job=$(slurm sbatch --parsable -o /dev/null -n1 --mem=1 --priority=1 --time=1 "$@" --wrap true) && wait_for 30 job_over "$job"
}
pending() { settle && job_is "$1" PENDING; }

# As another user, who may read nothing of root's.
submit_as() { local user=$1; shift; (cd /tmp && slurm runuser -u "$user" -- sbatch --parsable -o /dev/null --job-name=t "$@" --wrap 'exec sleep 600'); }
# squeue's reason, as %R shows it for a pending job.
reason_of() { slurm squeue -h -j "$1" -o %R; }
has_reason() { [[ $(reason_of "$1") =~ $2 ]]; }
# Both jobs run and hold the same GPUs on each node: share A B n1 n2
share() {
    local a=$1 b=$2 node
    shift 2
    running "$a" && running "$b" || return 1
    for node in "$@"; do
        [ -n "$(job_gpus "$a" "$node")" ] && [ "$(job_gpus "$a" "$node")" = "$(job_gpus "$b" "$node")" ] || return 1
    done
}
used() { [ "$(node_gpus_used "$1")" = "$2" ]; }
ctld_log() { grep -E "$1" "$(cluster_log ctld)"; }
no_errors() {
    local found
    found=$(grep -E 'error:|underflow|overallocated|fatal' "$(cluster_log ctld)" | grep -Ev "$ALLOW_ERRORS")
    [ -z "$found" ] && return 0
    say "slurmctld logged:"
    head -n 10 <<<"$found" | sed 's/^/#   /' >&3
    return 1
}
