#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# QOS, on a cluster with a real slurmdbd: sharing by QOS, preemption by QOS, and what accounting keeps of sharing jobs.
. "$(dirname "$0")/lib.sh"
CLUSTER_NODES=1 CLUSTER_GPUS=2 CLUSTER_CRED_EXPIRE_S=5
CLUSTER_JIGSAW_YAML='qos:
  quiet:
    sharing: off
  single:
    max_jobs_per_gpu: 1'
command -v mariadbd >/dev/null && [ -x /usr/sbin/slurmdbd ] || skip_all "needs slurmdbd and mariadb-server"
start_cluster

# A database of our own, on a socket and a port of loopback; both daemons carry JIGSAW_CLUSTER and end with the cluster.
db=$CLUSTER_DIR/db
mkdir "$db" && chown mysql: "$db"
mariadb-install-db --user=mysql --datadir="$db/data" --skip-test-db >"$CLUSTER_DIR/log/mariadb-install.log" 2>&1 ||
    bail_out "mariadb-install-db failed, see $CLUSTER_DIR/log/mariadb-install.log"
env JIGSAW_CLUSTER="$CLUSTER_DIR" mariadbd --no-defaults --user=mysql --datadir="$db/data" --socket="$db/socket" \
    --pid-file="$db/pid" --bind-address=127.0.0.1 --port=$((CLUSTER_PORT + 60)) --innodb-buffer-pool-size=16M \
    --innodb-lock-wait-timeout=900 3>&- 9>&- </dev/null >"$CLUSTER_DIR/log/mariadbd.log" 2>&1 &
sql() { timeout 10 mariadb --no-defaults --user=root --socket="$db/socket" -e "$1" >/dev/null 2>&1; }
wait_for 60 sql 'select 1' || bail_out "mariadbd does not start, see $CLUSTER_DIR/log/mariadbd.log"
sql "create database slurm; create user slurm@'127.0.0.1' identified by 'slurm'; grant all on slurm.* to slurm@'127.0.0.1'"
cat >"$CLUSTER_DIR/etc/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$CLUSTER_DIR/munge/munge.sock
DbdHost=$(hostname -s)
DbdAddr=127.0.0.1
DbdPort=$((CLUSTER_PORT + 61))
SlurmUser=root
LogFile=$CLUSTER_DIR/log/slurmdbd.log
PidFile=$CLUSTER_DIR/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((CLUSTER_PORT + 60))
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
CONF
chmod 600 "$CLUSTER_DIR/etc/slurmdbd.conf"
slurm /usr/sbin/slurmdbd 3>&- || bail_out "slurmdbd does not start"
CLUSTER_EXTRA="AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((CLUSTER_PORT + 61))
AccountingStoragePass=$CLUSTER_DIR/munge/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,qos
PreemptType=preempt/qos
PreemptMode=REQUEUE
PreemptExemptTime=0"
cluster_configure
sed -i 's,^AccountingStorageType=.*,AccountingStorageType=accounting_storage/slurmdbd,' "$CLUSTER_DIR/etc/slurm.conf"
sacctmgr() { slurm sacctmgr -i "$@" >&2; }
wait_for 60 sacctmgr list cluster || bail_out "slurmdbd does not answer, see $CLUSTER_DIR/log/slurmdbd.log"
sacctmgr add cluster jigsaw
sacctmgr add qos quiet,single,urgent
sacctmgr modify qos urgent set preempt=normal priority=100
sacctmgr modify user root set qos=normal,quiet,single,urgent defaultqos=normal
ok "slurmctld with slurmdbd" cluster_restart ctld
known() { [ "$(slurm scontrol show assoc_mgr flags=qos 2>/dev/null | grep -cE '^QOS=(normal|quiet|single|urgent)\(')" = 4 ]; }
ok "it knows the QOSes" wait_for 30 known

job_qos() { job_field "$1" QOS; }
a=$(submit --spb --gres=gpu:2)
ok "a job runs" running "$a"
is "in the default QOS" "$(job_qos "$a")" normal
b=$(submit --spb --gres=gpu:2)
ok "another shares its GPUs" share "$a" "$b" n1
c=$(submit --spb --gres=gpu:2)
ok "a third waits: two per GPU" pending "$c"
ok "end" cancel "$a" "$b" "$c"

a=$(submit --spb --gres=gpu:2 --qos=quiet)
ok "a job in a QOS without sharing runs" running "$a"
b=$(submit --spb --gres=gpu:2)
ok "nobody joins it" pending "$b"
ok "end" cancel "$a"
ok "the other one starts" running "$b"
c=$(submit --spb --gres=gpu:2 --qos=quiet)
ok "it joins nobody" pending "$c"
ok "end" cancel "$b" "$c"

a=$(submit --spb --gres=gpu:1)
running "$a"
b=$(submit --spb --gres=gpu:1 --qos=single)
ok "a job in a QOS for one job per GPU runs" running "$b"
nok "on a GPU of its own" test "$(job_gpus "$a" n1)" = "$(job_gpus "$b" n1)"
c=$(submit --spb --gres=gpu:2 --qos=single)
ok "another one joins nobody" pending "$c"
ok "end" cancel "$a" "$b" "$c"

restarts() { [ "$(job_field "$1" Restarts)" = "$2" ]; }
a=$(submit --spb --gres=gpu:2)
running "$a"
b=$(submit --spb --gres=gpu:2)
ok "two share" share "$a" "$b" n1
x=$(submit --qos=urgent --gres=gpu:2)
ok "a job of a QOS that preempts starts" running "$x"
ok "both were requeued for it" test "$(job_field "$a" Restarts)$(job_field "$b" Restarts)" = 11
ok "end of it" cancel "$x"
back() { job_is "$a" RUNNING && job_is "$b" RUNNING; }
ok "both come back" wait_for 60 back
ok "and share" share "$a" "$b" n1
ok "end" cancel "$a" "$b"

# Each resident is charged for the GPUs in full (docs/admin-switch.md, Accounting).
tres_of() { slurm sacct -n -X -P -j "$1" -o AllocTRES; }
charged() { [[ "$(tres_of "$1")" == *gres/gpu=2* ]]; }
ok "sacct has 2 GPUs for the first" wait_for 20 charged "$a"
ok "and 2 for the second" wait_for 20 charged "$b"
ok "slurmctld lives" cluster_pid ctld
ok "no error in slurmctld's log" no_errors
done_testing
