#!/usr/bin/env bash
# A Slurm cluster of this one machine, on loopback, for trying job files (README.md in this folder):
#   bash launch/slurm/test_cluster.sh start FOLDER && export SLURM_CONF=FOLDER/slurm.conf
#   bash launch/slurm/test_cluster.sh stop FOLDER
# Needs Debian's slurm-wlm and munge, and no root: whoever starts it owns it. Configuration, key, state,
# logs and sockets are in FOLDER; nothing else is changed. PORT (default 16817) and the one after it are
# used. Jobs get CPUS (default 4) processors, even if the machine has fewer.
set -euo pipefail

usage() {
  sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

[[ $# -eq 2 && $1 =~ ^(start|stop)$ ]] || usage
mkdir -p "$2"
folder=$(cd "$2" && pwd)
export SLURM_CONF=$folder/slurm.conf
# Debian keeps the daemons where only root looks for programs.
PATH=$PATH:/usr/sbin:/sbin

fail() {
  echo "error: $1" >&2
  exit 2
}

# Waits up to 30 s for a command to succeed.
wait_until() {
  local tries
  for ((tries = 0; tries < 150; tries++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  return 1
}

node_is_idle() { [[ $(sinfo --noheader --format=%T) == idle* ]]; }
no_jobs_are_left() { [[ -z $(squeue --noheader) ]]; }
is_gone() { ! kill -0 "$1"; }

write_configuration() {
  local port=${PORT:-16817} host user
  host=$(hostname -s)
  user=$(id -un)
  # cred_expire: a requeued job waits until its old credential has expired, 120 s by default.
  # PriorityTier, PreemptMode: a job in the partition `urgent` takes the place of one in `normal`.
  cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$host NodeAddr=127.0.0.1 CPUs=${CPUS:-4}
PartitionName=normal Nodes=$host Default=YES PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=$host PriorityTier=2 PreemptMode=OFF
END
}

start() {
  local program
  for program in slurmctld slurmd munged mungekey; do
    command -v "$program" >/dev/null || fail "$program is missing; on Debian: apt install slurm-wlm munge"
  done
  stop
  write_configuration
  mkdir -p "$folder/state" "$folder/spool"
  [[ -e $folder/munge.key ]] || mungekey --create --keyfile="$folder/munge.key"
  # --force: in a folder that is private (mktemp -d), munged misses other users, who are none here.
  munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munged.seed"
  slurmctld
  slurmd
  if ! wait_until node_is_idle; then
    stop
    fail "the node does not come up; see the logs in $folder"
  fi
  echo "one node is up: export SLURM_CONF=$SLURM_CONF"
}

stop() {
  local daemon pid
  if [[ -e $folder/slurmctld.pid ]]; then
    # A controller that is gone has no jobs to end.
    if scancel --user="$(id -un)" 2>/dev/null; then
      wait_until no_jobs_are_left || fail "some jobs do not end; see squeue"
    fi
  fi
  for daemon in slurmd slurmctld munged; do
    pid=$(cat "$folder/$daemon.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || true
    wait_until is_gone "$pid" || fail "$daemon ($pid) does not end"
    rm -f "$folder/$daemon.pid"
  done
}

"$1"
