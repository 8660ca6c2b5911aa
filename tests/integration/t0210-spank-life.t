#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# From prolog to epilog: record and token appear with the right modes and go again, whatever happens in between, and nothing
# that goes wrong costs a job or a node.
. "$(dirname "$0")/spank.sh"
CLUSTER_NODES=2 CLUSTER_GPUS=2 CLUSTER_CRED_EXPIRE_S=5
: "${PYTHON:=python3}"
start_spank_cluster

mode() { stat -c '%a %u' "$1"; }
stub() { # N [deaf]: in place of jigsawd on node N
    local log=$CLUSTER_DIR/log/stub-n$1
    rm -f "$log"
    JIGSAW_CLUSTER=$CLUSTER_DIR setsid "$PYTHON" "$here/agent_stub.py" "$RUN/n$1/socket" "$log" $2 </dev/null >>"$CLUSTER_DIR/log/stub.err" 2>&1 3>&- &
    STUB_PID=$!
    wait_for 10 heard "$1" listening
}
heard() { grep -qxF "$2" "$CLUSTER_DIR/log/stub-n$1" 2>/dev/null; }
record_here() { has_record "$1" n1 || has_record "$1" n2; }
starts_on() { wait_for 20 has_record "$1" "$2" "${3:-0}"; }

# Slurm itself does not know the restart count in a step.
restarted_tasks_ran() { [ "$(sort -u "$CLUSTER_DIR/ran" 2>/dev/null)" = "1 64" ] && [ "$(grep -c . "$CLUSTER_DIR/ran")" = 2 ]; }

# --- without any jigsawd
SUBMIT_WRAP="srun sh -c 'echo \$JIGSAW_RESTART \${#JIGSAW_TOKEN}' >$CLUSTER_DIR/ran; exec sleep 600"
a=$(submit --spb=4 --spb-policy=rotate -N2 -n2 --gres=gpu:2 --requeue)
ok "without jigsawd the job runs" running "$a"
ok "record and token on n1" starts_on "$a" n1
ok "record and token on n2" starts_on "$a" n2
is "mode of run_dir" "$(mode "$RUN")" "755 0"
is "mode of the node's folder" "$(mode "$RUN/n1")" "755 0"
is "mode of jobs" "$(mode "$RUN/n1/jobs")" "700 0"
is "mode of tokens" "$(mode "$RUN/n1/tokens")" "700 0"
is "mode of the record" "$(mode "$RUN/n1/jobs/$a.0")" "600 0"
is "mode of the token" "$(mode "$RUN/n1/tokens/$a.0")" "600 0"
is "the record holds the token's hash" "$(record_field "$a" token_sha256)" "$(head -c 64 "$RUN/n1/tokens/$a.0" | sha256sum | cut -d' ' -f1)"
is "GPUs" "$(record_field "$a" gpus n2)" 0,1
is "options" "$(record_field "$a" request n2)" "spb=4 spb-policy=rotate"
is "one warning on n1" "$(lines_about "$a" 1)" 1
is "one warning on n2" "$(lines_about "$a" 2)" 1
ok "it names the remedy" grep -q "job $a: jigsawd does not hear of it .*systemctl status jigsawd" "$(cluster_log 1)"

# --- requeue
slurm scontrol requeue "$a"
ok "after a requeue there is a new record" starts_on "$a" n1 1
ok "on n2 too" starts_on "$a" n2 1
nok "the old one is gone" has_record "$a" n1 0
ok "and tasks get it" wait_for 20 restarted_tasks_ran
unset SUBMIT_WRAP
cancel "$a"
ok "after the end nothing is left" wait_for 20 no_files "$a"

# --- with one that listens
stub 1
b=$(submit --spb -N1 -w n1 --gres=gpu:1)
ok "jigsawd hears of the start" wait_for 20 heard 1 "REGISTER job=$b restart=0"
ok "running" running "$b"
nok "no warning" grep -q "jigsaw: job $b:" "$(cluster_log 1)"
plain=$(submit -N1 -w n1 --gres=gpu:1)
ok "a job that does not share runs" running "$plain"
nok "without record" has_record "$plain"
cancel "$b" "$plain"
ok "jigsawd hears of the end" wait_for 20 heard 1 "DRAIN job=$b restart=0"
nok "and nothing of the job that does not share" grep -q "job=$plain" "$CLUSTER_DIR/log/stub-n1"
kill "$STUB_PID"

# --- with one that is stuck
stub 1 deaf
for i in 1 2 3; do
    c=$(submit --spb -N1 -w n1 --gres=gpu:1)
    ok "with a deaf jigsawd job $i runs" running "$c"
    cancel "$c"
    ok "and ends" wait_for 20 no_files "$c"
done
kill "$STUB_PID"
rm -f "$RUN/n1/socket"

# --- what tasks get
tasks=$CLUSTER_DIR/out
slurm srun -Q --spb -w n1 -N1 -n2 --gres=gpu:1 -o "$tasks" sh -c 'echo $JIGSAW_SOCKET $JIGSAW_JOB=$SLURM_JOB_ID $JIGSAW_RESTART $JIGSAW_STEP=$SLURM_STEP_ID ${#JIGSAW_TOKEN}'
like "both tasks have all five variables" "$(sort -u "$tasks")" "^$RUN/n1/socket ([0-9]+)=\\1 0 0=0 64\$|^$RUN/n1/socket [0-9]+=[0-9]+ 0 0=0 64\$"
is "of two tasks" "$(grep -c . "$tasks")" 2
JIGSAW_JOB=1 JIGSAW_TOKEN=x JIGSAW_SOCKET=/x slurm srun -Q -w n1 --gres=gpu:1 -o "$tasks" sh -c 'echo [$JIGSAW_SOCKET$JIGSAW_TOKEN$JIGSAW_JOB]'
is "another job's variables do not reach a task" "$(cat "$tasks")" "[]"

# --- a killed slurmstepd runs no callback
d=$(submit --spb -w n1 --gres=gpu:1)
ok "d runs" starts_on "$d" n1
running "$d"
stepd() { # the parent of a task of this cluster: others on this host have a job of that number too
    local pid parent
    for pid in $(_cluster_processes); do
        parent=$(awk '/^PPid/ { print $2 }' "/proc/$pid/status" 2>/dev/null) || continue
        tr '\0' ' ' <"/proc/$parent/cmdline" 2>/dev/null | grep -q "^slurmstepd: \[$1.batch\]" && echo "$parent"
    done | sort -u | grep .
}
ok "its slurmstepd is there" wait_for 10 stepd "$d"
# One process or several, each a word.
# shellcheck disable=SC2046
kill -KILL $(stepd "$d")
cancel "$d"
ok "its record goes all the same" wait_for 20 no_files "$d"

# --- a folder of somebody else
chown 65534 "$RUN/n1"
e=$(submit --spb -w n1 --gres=gpu:1)
ok "with a run folder that belongs to a user the job runs" running "$e"
is "one line" "$(lines_about "$e" 1)" 1
ok "it says what is wrong" grep -q "job $e: not registered ($RUN/n1: belongs to uid 65534, not to uid 0; remove it); it runs without turns" "$(cluster_log 1)"
nok "nothing was written there" has_record "$e"
cancel "$e"
chown 0 "$RUN/n1"

# --- forged values
forge=${top_builddir:-$here/../../build}/tests/integration/forge
[ -x "$forge" ] || bail_out "$forge is not built (make check-programs)"
prefix=_SLURM_SPANK_OPTION_jigsaw_
exclusive_lines() { cat "$CLUSTER_DIR"/log/slurm*.log | grep -c "jigsaw: job $1: .*\(it has its GPUs to itself\|it gets GPUs of its own\)"; }
forged() { # TEXT ENTRIES: the job runs without a record, one line
    local text=$1 job
    shift
    job=$(slurm "$forge" "$CLUSTER_DIR" "$@")
    ok "forged $text: the job runs" running "$job"
    # From the controller where select/jigsaw is there (the prolog then sees none of it), else from the prolog.
    wait_for 20 exclusive_lines "$job" >/dev/null
    is "forged $text: one line" "$(exclusive_lines "$job")" 1
    ok "forged $text: no record" no_files "$job"
    cancel "$job"
}
forged "levels" "${prefix}spb=99"
forged "size" "${prefix}spb=auto" "${prefix}spb_mem=99999999999999999999999G"
forged "name" "${prefix}spb=auto" "${prefix}spb_evil=1"
forged "alone" "${prefix}spb_weight=2"
forged "control characters" "${prefix}spb=$(printf 'au\nto\033[31m')"
forged "length" "${prefix}spb=auto" "${prefix}spb_profile=$(printf 'x%.0s' $(seq 20000))"
good=$(slurm "$forge" "$CLUSTER_DIR" "${prefix}spb=full")
ok "good values by libslurm are as good as sbatch's" wait_for 20 record_here "$good"
cancel "$good"

# --- run_dir from jigsaw.yaml
echo "run_dir: $CLUSTER_DIR/elsewhere" >"$CLUSTER_DIR/etc/jigsaw.yaml"
sed -i "s,run_dir=.*,config=$CLUSTER_DIR/etc/jigsaw.yaml," "$CLUSTER_DIR/etc/plugstack.conf"
f=$(submit --spb -w n1 --gres=gpu:1)
ok "run_dir can come from jigsaw.yaml" wait_for 20 test -s "$CLUSTER_DIR/elsewhere/n1/jobs/$f.0"
cancel "$f"
gone() { [ ! -e "$CLUSTER_DIR/elsewhere/n1/jobs/$f.0" ]; }
ok "and its record goes" wait_for 20 gone

ok "no node is down or drained" no_node_is_down
ok "no line of ours in any log is about a crash" sh -c "! grep -Eq 'segfault|signal 11|Segmentation' $CLUSTER_DIR/log/*.log"
done_testing
