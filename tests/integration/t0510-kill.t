#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Processes and daemons killed in the middle of an iteration: the co-resident goes on, no turn is lost, nothing is left.
. "$(dirname "$0")/runtime.sh"
start_shared_cluster
long=(--iterations 700 --forward-us 1000 --backward-us 3000)

start_pair() { # a and b, both past iteration 20, so both have rivals; more options go to a
    a=$(toy a --spb=2 -- "${long[@]}" "$@")
    reached a 0 2 || say "a does not start"
    b=$(toy b --spb=2 -- "${long[@]}")
    reached b 0 20 && reached a 0 20 || say "the pair does not start: a $(toy_at a 0), b $(toy_at b 0)"
}
# After the line of the log that matches $2, node $1 lets the next one in (by a grant, or by opening the gate when nobody
# else is left) before any lease runs out.
granted_before_lease() {
    awk -v after="$2" '$0 ~ after { seen = 1; next } seen && /"event":"(grant|open)"/ { found = 1; exit }
        seen && /"event":"lease"/ { exit } END { exit !found }' "$(agent_trace "$1")"
}

no_process_of() { # NAME
    local entry
    for entry in /proc/[0-9]*; do ! _command_of "${entry#/proc/}" | grep -q "^[^ ]*$CLUSTER_DIR/bin/toy_train .*/out/$1-" || return 1; done
}

# How many turns were taken away from somebody since the start, on both nodes.
leases() { cat "$(agent_trace 1)" "$(agent_trace 2)" | grep -c '"event":"lease"'; }
no_turn_was_lost() { [ "$(leases)" = "$leases_before" ]; }

say "a rank is killed, with a forked data loader alive"
start_pair --fork-loader
kill -KILL "$(toy_pid a 1)"
ok "the other rank of a says who left" output_says a 'rank 1'
ok "the agent of n2 saw the death" wait_for 10 grep -q '"event":"dead"' "$(agent_trace 2)"
ok "b's next turn on n2 came before the lease ended" granted_before_lease 2 '"event":"dead"'
ok "b ends well" ended_well "$b" b
cancel "$a"
ok "no record of a is left" wait_for 20 records_gone "$a"
ok "nor a process of it, the loaders included" wait_for 20 no_process_of a

say "jigsawd is killed and comes back"
start_pair
agent_kill 1
agent_kill 2
at=$(toy_at a 0)
ok "a goes on without jigsawd" reached a 0 $((at + 20))
agents_start
ok "a goes on with the new one" reached a 0 $((at + 60))
ok "a ends well" ended_well "$a" a
ok "b ends well" ended_well "$b" b

say "slurmd is killed"
start_pair --fork-loader
leases_before=$(leases)
cluster_kill 1
ok "a goes on meanwhile" reached a 0 120
cluster_begin 1
ok "a ends well" ended_well "$a" a
ok "b ends well" ended_well "$b" b
ok "no record of a is left" wait_for 20 records_gone "$a"

ok "no turn was lost" no_turn_was_lost
ok "nor a process of a left, the loaders included" wait_for 20 no_process_of a

say "slurmstepd of a is killed"
start_pair
pid=$(step_pid "$a") && kill -KILL "$pid"
ok "b ends well" ended_well "$b" b
cancel "$a"
ok "no record of a is left" wait_for 20 records_gone "$a"
# Slurm cannot end them without its slurmstepd; they end by themselves.
ok "nor, once they are through, a process of a" wait_for 60 no_process_of a

say "slurmctld is killed and comes back"
long=(--iterations 1500 --forward-us 1000 --backward-us 3000) # long enough for slurmctld to write its state
start_pair
touch "$CLUSTER_DIR/started" # slurmctld writes its state some seconds after a change: a job it never wrote down is lost
wait_for 30 test "$CLUSTER_DIR/state/job_state" -nt "$CLUSTER_DIR/started"
leases_before=$(leases)
cluster_kill ctld
at=$(toy_at a 0)
ok "a goes on without slurmctld" reached a 0 $((at + 20))
cluster_begin ctld
ok "the jobs are still on the same GPU" test "$(job_gpus "$a" n1)" = "$(job_gpus "$b" n1)"
ok "a ends well" ended_well "$a" a
ok "b ends well" ended_well "$b" b
ok "no turn was lost" no_turn_was_lost

say "slurmctld, slurmd and the slurmstepd of a are stopped, and go on"
start_pair --fork-loader
leases_before=$(leases)
pid=$(step_pid "$a")
kill -STOP "$pid"
cluster_kill 1 STOP
cluster_kill ctld STOP
at=$(toy_at a 0) at_b=$(toy_at b 0)
ok "a goes on meanwhile" reached a 0 $((at + 30))
ok "b goes on meanwhile" reached b 0 $((at_b + 30))
cluster_kill ctld CONT
cluster_kill 1 CONT
kill -CONT "$pid"
ok "a ends well" ended_well "$a" a
ok "b ends well" ended_well "$b" b
ok "no turn was lost" no_turn_was_lost

say "jigsawd is stopped, and goes on"
start_pair
agent_kill 1 STOP
agent_kill 2 STOP
at=$(toy_at a 0)
ok "a goes on without jigsawd" reached a 0 $((at + 20))
agent_kill 1 CONT
agent_kill 2 CONT
ok "a goes on with it" reached a 0 $((at + 60))
ok "a ends well" ended_well "$a" a
ok "b ends well" ended_well "$b" b

say "a rank is stopped, and goes on"
start_pair
pid=$(toy_pid a 0)
kill -STOP "$pid"
at=$(toy_at b 0)
ok "b goes on while a is stopped" reached b 0 $((at + 10))
kill -CONT "$pid"
ok "a ends well" ended_well "$a" a
ok "b ends well" ended_well "$b" b

say "a job never gives its turn back"
a=$(toy a --spb=2 -- "${long[@]}" --hold-at 30)
reached a 0 2
b=$(toy b --spb=2 -- --iterations 100 --forward-us 1000 --backward-us 3000)
ok "b ends well all the same" ended_well "$b" b
ok "jigsawd names it" agent_says 1 "job $a .*(never|does not) give"
cancel "$a"
for node in 1 2; do ok "the model accepts the gate log of n$node" replay_accepts $node; done
done_testing
