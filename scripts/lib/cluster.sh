# SPDX-License-Identifier: Apache-2.0
# A private Slurm cluster on this host, loopback only: its own munged, slurmctld and N slurmd in a folder of its own.
# Source it from bash; nothing runs until cluster_start. Needs root, an installed Slurm and munge, no cgroups and no
# GPU: a GPU is a link to /dev/null (Slurm wants a device file, stat() follows links).
#
#     . scripts/lib/cluster.sh
#     CLUSTER_DIR=$(mktemp -d) CLUSTER_PORT=17000 CLUSTER_NODES=2 CLUSTER_GPUS=1 CLUSTER_SELECT=select/jigsaw
#     CLUSTER_PLUGINS=/usr/lib/x86_64-linux-gnu/slurm-wlm        # where ours are, when not in Slurm's own folder
#     CLUSTER_PLUGSTACK="optional /path/spank_jigsaw.so"
#     trap cluster_stop EXIT
#     cluster_start || exit 1
#     job=$(slurm sbatch --parsable -N2 --gres=gpu:1 --wrap 'sleep 60')
#     wait_for 20 job_is "$job" RUNNING
#
# Set before cluster_start (defaults below):
#   CLUSTER_DIR         folder for everything; required, made if absent
#   CLUSTER_PORT        slurmctld's port; slurmd N listens on CLUSTER_PORT + N
#   CLUSTER_NODES       how many nodes, named n1, n2, ...
#   CLUSTER_GPUS        GPUs on each node (0: no Gres at all)
#   CLUSTER_CPUS CLUSTER_MEMORY_MB   of each node; declared, need not exist
#   CLUSTER_SOCKETS     of each node, default 1; since 24.11 the Cores= of a gres.conf must be those of whole sockets
#   CLUSTER_NODE_GRES   Gres= of the nodes, default gpu:$CLUSTER_GPUS
#   CLUSTER_GRES_CONF   text of gres.conf instead of the generated one; @DIR@ is CLUSTER_DIR, the device of GPU 3 is
#                       @DIR@/dev/gpu3
#   CLUSTER_SELECT CLUSTER_SELECT_PARAMS   SelectType, SelectTypeParameters
#   CLUSTER_PLUGINS     folder searched for plugins before Slurm's own
#   CLUSTER_PLUGSTACK   text of plugstack.conf
#   CLUSTER_PROLOG_FLAGS   PrologFlags, default Alloc; "" leaves the line out
#   CLUSTER_SCHED_PARAMS   SchedulerParameters
#   CLUSTER_PARTITIONS  text of the PartitionName lines, default one partition "main" with all nodes
#   CLUSTER_CRED_EXPIRE_S  a requeued job starts again after this and a second; its prolog does not run sooner
#   CLUSTER_EXTRA       more lines of slurm.conf
#   CLUSTER_JIGSAW_YAML text of jigsaw.yaml; the daemons get its path in JIGSAW_CONFIG
#   CLUSTER_ENV         array: more NAME=VALUE for all daemons
#
# Then: slurm CMD ARGS (with a time-out), cluster_start, cluster_stop (cancels jobs, stops by pid; safe to repeat),
# cluster_configure (rewrites etc/ from the variables), cluster_begin ctld|N, cluster_end ctld|N, cluster_kill ctld|N
# [SIGNAL], cluster_restart ctld|N, cluster_pid ctld|N, cluster_log ctld|N (path of its log),
# wait_for SECONDS CMD..., job_is JOB STATE, job_field JOB FIELD, job_gpus JOB NODE, node_gpus_used NODE.

: "${CLUSTER_PORT:=17000}" "${CLUSTER_NODES:=2}" "${CLUSTER_GPUS:=4}" "${CLUSTER_CPUS:=16}" "${CLUSTER_MEMORY_MB:=4000}"
: "${CLUSTER_SELECT:=select/cons_tres}" "${CLUSTER_SELECT_PARAMS:=CR_Core}" "${CLUSTER_PROLOG_FLAGS=Alloc}"
: "${CLUSTER_SCHED_PARAMS:=sched_min_interval=100000,bf_interval=1,sched_interval=2,batch_sched_delay=0}"
: "${CLUSTER_TIMEOUT_S:=30}" "${CLUSTER_CRED_EXPIRE_S:=20}" "${CLUSTER_SOCKETS:=1}"
declare -a CLUSTER_ENV

_cluster_host() { hostname -s; }

# Slurm's own plugin folder.
cluster_slurm_plugins() {
    local dir
    for dir in /usr/lib/*/slurm-wlm /usr/lib64/slurm /usr/lib/*/slurm /usr/lib/slurm /usr/local/lib/slurm; do
        [ -f "$dir/select_cons_tres.so" ] && { echo "$dir"; return 0; }
    done
    echo "cluster: select_cons_tres.so not found; install Slurm" >&2
    return 1
}

# The release as a number: 2205, 2411.
_cluster_release() { /usr/sbin/slurmctld -V | sed -E 's/[^0-9]*([0-9]+)\.0*([0-9]+).*/\1 \2/' | { read -r a b; echo $((a * 100 + b)); }; }

# One Slurm command on this cluster, with a time-out.
slurm() { SLURM_CONF=$CLUSTER_DIR/etc/slurm.conf timeout -k 2 "$CLUSTER_TIMEOUT_S" env JIGSAW_CLUSTER="$CLUSTER_DIR" "$@"; }

# Every process that this cluster started carries the folder in its environment: nothing else is ever killed.
_cluster_daemon() {
    env JIGSAW_CLUSTER="$CLUSTER_DIR" SLURM_CONF="$CLUSTER_DIR/etc/slurm.conf" JIGSAW_CONFIG="$CLUSTER_DIR/etc/jigsaw.yaml" \
        "${CLUSTER_ENV[@]}" "$@" 9>&- </dev/null >>"$CLUSTER_DIR/log/start.log" 2>&1
}

_cluster_folders() {
    [ -n "${CLUSTER_DIR:-}" ] || { echo "cluster: set CLUSTER_DIR" >&2; return 1; }
    local i
    mkdir -p "$CLUSTER_DIR"/{etc,run,log,state,dev,munge,spool} || return 1
    chmod 755 "$CLUSTER_DIR" "$CLUSTER_DIR"/{etc,run,log,dev,spool}
    for ((i = 1; i <= CLUSTER_NODES; i++)); do mkdir -p "$CLUSTER_DIR/spool/n$i"; done
    for ((i = 0; i < CLUSTER_GPUS; i++)); do ln -sfn /dev/null "$CLUSTER_DIR/dev/gpu$i"; done
    if [ ! -f "$CLUSTER_DIR/munge/munge.key" ]; then
        (umask 077; dd if=/dev/urandom of="$CLUSTER_DIR/munge/munge.key" bs=1024 count=1 status=none)
    fi
    chown -R munge: "$CLUSTER_DIR/munge"
}

_cluster_gres() { # the Gres= of a node, empty when it has no GPU
    [ "$CLUSTER_GPUS" -gt 0 ] && echo "${CLUSTER_NODE_GRES:-gpu:$CLUSTER_GPUS}"
}

_cluster_slurm_conf() {
    local old='' gres i dir=$CLUSTER_DIR
    [ "$(_cluster_release)" -lt 2302 ] && old=1
    gres=$(_cluster_gres)
    cat <<CONF
ClusterName=jigsaw
SlurmctldHost=$(_cluster_host)(127.0.0.1)
SlurmctldPort=$CLUSTER_PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/munge.sock,cred_expire=$CLUSTER_CRED_EXPIRE_S
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
SlurmctldDebug=${CLUSTER_DEBUG:-verbose}
SlurmdDebug=${CLUSTER_DEBUG:-verbose}
DebugFlags=NO_CONF_HASH
ProctrackType=proctrack/pgid
${old:+TaskPlugin=task/none}
${old:+MpiDefault=none}
${old:+SwitchType=switch/none}
${old:+JobAcctGatherType=jobacct_gather/none}
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=$CLUSTER_SCHED_PARAMS
SelectType=$CLUSTER_SELECT
SelectTypeParameters=$CLUSTER_SELECT_PARAMS
${gres:+GresTypes=gpu}
${CLUSTER_PROLOG_FLAGS:+PrologFlags=$CLUSTER_PROLOG_FLAGS}
MailProg=/bin/true
ReturnToService=2
MinJobAge=300
KillWait=2
SlurmdTimeout=60
SlurmdParameters=config_overrides
PlugStackConfig=$dir/etc/plugstack.conf
PluginDir=${CLUSTER_PLUGINS:+$CLUSTER_PLUGINS:}$(cluster_slurm_plugins)
${CLUSTER_EXTRA:-}
CONF
    for ((i = 1; i <= CLUSTER_NODES; i++)); do
        echo "NodeName=n$i NodeHostname=$(_cluster_host) NodeAddr=127.0.0.1 Port=$((CLUSTER_PORT + i)) CPUs=$CLUSTER_CPUS" \
            "Sockets=$CLUSTER_SOCKETS CoresPerSocket=$((CLUSTER_CPUS / CLUSTER_SOCKETS)) ThreadsPerCore=1 RealMemory=$CLUSTER_MEMORY_MB${gres:+ Gres=$gres}"
    done
    echo "${CLUSTER_PARTITIONS:-PartitionName=main Nodes=n[1-$CLUSTER_NODES] Default=YES MaxTime=INFINITE State=UP}"
}

_cluster_gres_conf() {
    if [ -n "${CLUSTER_GRES_CONF:-}" ]; then
        echo "${CLUSTER_GRES_CONF//@DIR@/$CLUSTER_DIR}"
    elif [ "$CLUSTER_GPUS" -gt 0 ]; then
        echo "AutoDetect=off"
        echo "NodeName=n[1-$CLUSTER_NODES] Name=gpu File=$CLUSTER_DIR/dev/gpu[0-$((CLUSTER_GPUS - 1))]"
    fi
}

# Write etc/ from the variables; a running cluster sees it at its next restart or reconfigure.
cluster_configure() {
    _cluster_folders || return 1
    _cluster_slurm_conf >"$CLUSTER_DIR/etc/slurm.conf"
    _cluster_gres_conf >"$CLUSTER_DIR/etc/gres.conf"
    echo "${CLUSTER_PLUGSTACK:-}" >"$CLUSTER_DIR/etc/plugstack.conf"
    echo "CgroupPlugin=disabled" >"$CLUSTER_DIR/etc/cgroup.conf"
    [ "$(_cluster_release)" -lt 2302 ] && rm -f "$CLUSTER_DIR/etc/cgroup.conf"
    echo "${CLUSTER_JIGSAW_YAML:-}" >"$CLUSTER_DIR/etc/jigsaw.yaml"
}

_cluster_pid_file() { case $1 in ctld) echo "$CLUSTER_DIR/run/slurmctld.pid";; munge) echo "$CLUSTER_DIR/munge/munged.pid";; *) echo "$CLUSTER_DIR/run/slurmd-n$1.pid";; esac; }
cluster_log() { case $1 in ctld) echo "$CLUSTER_DIR/log/slurmctld.log";; *) echo "$CLUSTER_DIR/log/slurmd-n$1.log";; esac; }

# The pid of a daemon that is alive; fails when it is not.
cluster_pid() {
    local pid
    pid=$(cat "$(_cluster_pid_file "$1")" 2>/dev/null) && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && echo "$pid"
}

_cluster_munge() {
    rm -f "$CLUSTER_DIR"/munge/munge.sock*
    _cluster_daemon runuser -u munge -- /usr/sbin/munged --key-file="$CLUSTER_DIR/munge/munge.key" \
        --socket="$CLUSTER_DIR/munge/munge.sock" --pid-file="$CLUSTER_DIR/munge/munged.pid" \
        --log-file="$CLUSTER_DIR/munge/munged.log" --seed-file="$CLUSTER_DIR/munge/seed" --num-threads=2
}

# Start one daemon: ctld or the number of a node. More arguments go to it (ctld -c: forget all state).
cluster_begin() {
    local what=$1
    shift
    rm -f "$(_cluster_pid_file "$what")"
    case $what in
        munge) _cluster_munge ;;
        ctld) _cluster_daemon /usr/sbin/slurmctld "$@" && wait_for 20 cluster_pid ctld >/dev/null && wait_for 20 _cluster_answers ;;
        *) _cluster_daemon /usr/sbin/slurmd -N "n$what" "$@" && wait_for 20 cluster_pid "$what" >/dev/null ;;
    esac && return 0
    echo "cluster: $what does not start; see $CLUSTER_DIR/log" >&2
    tail -n 15 "$CLUSTER_DIR/log/start.log" "$(cluster_log "$what")" >&2
    return 1
}
_cluster_answers() { slurm timeout 5 scontrol ping 2>/dev/null | grep -q UP; }

# Send a signal (default KILL) and wait until the process is gone; other signals than TERM and KILL do not wait.
cluster_kill() {
    local pid signal=${2:-KILL}
    pid=$(cluster_pid "$1") || return 0
    kill "-$signal" "$pid"
    case $signal in KILL | TERM) wait_for 20 _cluster_gone "$pid" || kill -KILL "$pid" ;; esac
}
_cluster_gone() { [ ! -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
cluster_end() { cluster_kill "$1" TERM; }
cluster_restart() {
    local what=$1
    shift
    cluster_end "$what"
    cluster_begin "$what" "$@" || return 1
}

cluster_nodes_idle() { [ "$(slurm sinfo -h -t idle -o %D 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')" = "$CLUSTER_NODES" ]; }

# Configure and start everything from nothing; returns when all nodes are idle.
cluster_start() {
    local i
    cluster_configure && cluster_begin munge && wait_for 10 test -S "$CLUSTER_DIR/munge/munge.sock" && cluster_begin ctld -c || return 1
    for ((i = 1; i <= CLUSTER_NODES; i++)); do cluster_begin "$i" || return 1; done
    wait_for 30 cluster_nodes_idle && return 0
    echo "cluster: nodes are not idle" >&2
    slurm sinfo -N -l >&2
    tail -n 20 "$(cluster_log ctld)" >&2
    return 1
}

# Pids of this cluster's processes: daemons, slurmstepd, tasks. Never this shell.
_cluster_processes() {
    local entry
    for entry in /proc/[0-9]*; do
        [ "${entry#/proc/}" != "$$" ] && [ "${entry#/proc/}" != "$BASHPID" ] || continue
        { tr '\0' '\n' <"$entry/environ" | grep -qxF "JIGSAW_CLUSTER=$CLUSTER_DIR"; } 2>/dev/null && echo "${entry#/proc/}"
    done
    return 0
}
_cluster_no_jobs() { [ -z "$(slurm squeue -h -o %i 2>/dev/null)" ]; }

# Cancel all jobs, stop all daemons, leave no process. The folder stays, for its logs.
cluster_stop() {
    local i pid
    [ -n "${CLUSTER_DIR:-}" ] && [ -d "$CLUSTER_DIR/run" ] || return 0
    if cluster_pid ctld >/dev/null; then
        slurm timeout 10 scancel -f -u root 2>/dev/null
        CLUSTER_TIMEOUT_S=5 wait_for 5 _cluster_no_jobs
    fi
    for ((i = 1; i <= CLUSTER_NODES; i++)); do cluster_end "$i"; done
    cluster_end ctld
    cluster_end munge
    for pid in $(_cluster_processes); do kill -KILL "$pid" 2>/dev/null; done
    rm -f "$CLUSTER_DIR"/run/*.pid
    return 0
}

# Try a command ten times a second until it succeeds or SECONDS have passed.
wait_for() {
    local until=$(($(date +%s) + $1))
    shift
    while ! "$@"; do
        [ "$(date +%s)" -le "$until" ] || return 1
        sleep 0.1
    done
}

# One field of `scontrol show job`, e.g. job_field 12 Reason.
job_field() { slurm scontrol -o -d show job "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
job_is() { [ "$(job_field "$1" JobState)" = "$2" ]; }
# GPU indices of a job on a node as Slurm prints them: 0-1. Slurm folds nodes with the same row: Nodes=n[1-2] ...
job_gpus() {
    local nodes gpus
    while read -r nodes gpus; do
        slurm scontrol show hostnames "$nodes" | grep -qx "$2" && echo "$gpus"
    done < <(slurm scontrol -d show job "$1" 2>/dev/null |
        awk '$1 ~ /^Nodes=/ {
            gpus = ""; rest = $0
            while (match(rest, /IDX:[0-9,-]+/)) { # one for each GPU type
                gpus = gpus (gpus == "" ? "" : ",") substr(rest, RSTART + 4, RLENGTH - 4)
                rest = substr(rest, RSTART + RLENGTH)
            }
            print substr($1, 7), gpus
        }')
}
# GresUsed of a node: gpu:2(IDX:0-1)
node_gpus_used() { slurm scontrol -d show node "$1" 2>/dev/null | sed -n 's/^ *GresUsed=//p'; }
