# SPDX-License-Identifier: Apache-2.0
# jigsawd on every node of a private cluster (scripts/lib/cluster.sh, sourced before this file). Each node has a
# configuration of its own, and GPU g of node n stands for CPU core (n - 1) * CLUSTER_GPUS + g, modulo the cores here.
#
#   AGENT_BIN    path of jigsawd; required          AGENT_RUN_DIR   default CLUSTER_DIR/jigsaw
#   AGENT_YAML   more text for every node's jigsaw.yaml
#
# agents_start, agent_begin N, agent_reload N, agent_kill N [SIGNAL], agent_end N, agents_stop; agent_pid N; agent_log N (its messages),
# agent_trace N (its gate log, docs/gate-log.md), agent_socket N.

agent_run_dir() { echo "${AGENT_RUN_DIR:-$CLUSTER_DIR/jigsaw}"; }
agent_log() { echo "$CLUSTER_DIR/log/jigsawd-n$1.log"; }
agent_trace() { echo "$CLUSTER_DIR/log/trace-n$1.jsonl"; }
agent_socket() { echo "$(agent_run_dir)/n$1/socket"; }
_agent_pid_file() { echo "$CLUSTER_DIR/run/jigsawd-n$1.pid"; }
agent_pid() {
    local pid
    pid=$(cat "$(_agent_pid_file "$1")" 2>/dev/null) && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && echo "$pid"
}

_agent_yaml() { # N
    local g
    echo "run_dir: $(agent_run_dir)"
    echo "trace_file: $(agent_trace "$1")"
    echo "slurm_conf: $CLUSTER_DIR/etc/slurm.conf"
    echo "gpu_cores:"
    echo "  n$1:"
    for ((g = 0; g < CLUSTER_GPUS; g++)); do echo "    $g: $(((($1 - 1) * CLUSTER_GPUS + g) % $(nproc)))"; done
    echo "${AGENT_YAML:-}"
}

agent_configure() { mkdir -p "$(agent_run_dir)" && _agent_yaml "$1" >"$CLUSTER_DIR/etc/jigsawd-n$1.yaml"; }
# Read AGENT_YAML again; returns when jigsawd said that it did.
agent_reload() { # N
    local before
    before=$(_agent_reloads "$1")
    agent_configure "$1"
    agent_kill "$1" HUP
    wait_for 10 _agent_reloaded "$1" "$before"
}
_agent_reloads() { grep -c 'configuration' "$(agent_log "$1")" || true; } # grep fails when it counts none
_agent_reloaded() { [ "$(_agent_reloads "$1")" -gt "$2" ]; }
agent_begin() { # N
    agent_configure "$1"
    JIGSAW_CLUSTER=$CLUSTER_DIR SLURM_CONF=$CLUSTER_DIR/etc/slurm.conf \
        setsid "$AGENT_BIN" --node "n$1" --config "$CLUSTER_DIR/etc/jigsawd-n$1.yaml" --run-dir "$(agent_run_dir)" \
        9>&- 3>&- </dev/null >>"$(agent_log "$1")" 2>&1 &
    echo $! >"$(_agent_pid_file "$1")"
    wait_for 10 test -S "$(agent_socket "$1")" && agent_pid "$1" >/dev/null && return 0
    echo "agents: jigsawd of n$1 does not start; see $(agent_log "$1")" >&2
    tail -n 15 "$(agent_log "$1")" >&2
    return 1
}
agent_kill() { # N [SIGNAL]
    local pid signal=${2:-KILL}
    pid=$(agent_pid "$1") || return 0
    kill "-$signal" "$pid"
    case $signal in KILL | TERM) wait_for 10 _cluster_gone "$pid" || kill -KILL "$pid" ;; esac
}
agent_end() { agent_kill "$1" TERM; }
agents_start() {
    local i
    for ((i = 1; i <= CLUSTER_NODES; i++)); do agent_begin "$i" || return 1; done
}
agents_stop() {
    local i
    for ((i = 1; i <= ${CLUSTER_NODES:-0}; i++)); do agent_end "$i"; rm -f "$(_agent_pid_file "$i")"; done
    return 0
}
