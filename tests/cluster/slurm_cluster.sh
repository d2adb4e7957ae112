#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster of a controller and node1 to node4 that lives as long as this script:
#   unshare --net --mount --uts --pid --fork --kill-child --mount-proc slurm_cluster.sh <directory> <visible path>...
# It keeps everything in the directory, which all nodes see. In /tmp they share only that and the visible paths.
# Once <directory>/ready exists, the controller's namespaces are those of the process in <directory>/pid.
set -euo pipefail

wait_until() {
  for _ in {1..3600}; do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.05
  done
  echo "slurm_cluster: waited three minutes for: $*" >&2
  return 1
}

# Each host has its own /tmp and /dev/shm, as real hosts have. PMIx and Open MPI keep files there under equal
# names.
hide_directories() {
  mount -t tmpfs -o mode=1777 tmpfs /mnt
  for path in "$@"; do
    if [[ $path == /tmp/* ]]; then
      mkdir -p "/mnt/${path#/tmp/}"
      mount --bind "$path" "/mnt/${path#/tmp/}"
    fi
  done
  mount --move /mnt /tmp
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
}

run_node() {
  local name=$1 address=$2
  shift 2
  hostname "$name"
  hide_directories "$@"
  wait_until ip link show eth0
  ip address add "$address/24" dev eth0
  ip link set eth0 up
  ip link set lo up
  exec slurmd -D
}

if [[ $1 == --node ]]; then
  run_node "${@:2}"
fi

directory=$1
nodes=(node1 node2 node3 node4)
cd "$directory"
export SLURM_CONF=$directory/slurm.conf

cat >slurm.conf <<END
ClusterName=lockstep
SlurmctldHost=controller(10.77.0.1)
SlurmUser=root
MpiDefault=none
AuthInfo=socket=$directory/munge.socket
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/%n
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/%n.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=10
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
GresTypes=gpu
NodeName=DEFAULT CPUs=8 RealMemory=1000 Gres=gpu:h100:4
PartitionName=all Nodes=ALL Default=YES MaxTime=1:00:00
END
# These devices stand for GPUs. They are never opened.
for i in {0..3}; do mknod "gpu$i" c 195 "$i"; done
echo "Name=gpu Type=h100 File=$directory/gpu[0-3]" >gres.conf
echo "127.0.0.1 localhost" >hosts
echo "10.77.0.1 controller" >>hosts
for i in "${!nodes[@]}"; do
  echo "10.77.0.1$i ${nodes[i]}" >>hosts
  echo "NodeName=${nodes[i]} NodeAddr=10.77.0.1$i" >>slurm.conf
done

hostname controller
mount --bind hosts /etc/hosts
ip link set lo up
ip link add switch type bridge
ip address add 10.77.0.1/24 dev switch
ip link set switch up

head -c 128 /dev/urandom >munge.key
chmod 600 munge.key
munged --force --socket="$directory/munge.socket" --key-file="$directory/munge.key" --pid-file="$directory/munge.pid" \
  --log-file="$directory/munge.log" --seed-file="$directory/munge.seed"
mkdir state
slurmctld

for i in "${!nodes[@]}"; do
  unshare --net --mount --uts "$0" --node "${nodes[i]}" "10.77.0.1$i" "$@" &
  node=$!
  wait_until eval "! cmp <(readlink /proc/$node/ns/net) <(readlink /proc/self/ns/net)"
  ip link add "port$i" type veth peer name eth0 netns "$node"
  ip link set "port$i" master switch up
done

wait_until eval "[[ \$(sinfo --noheader --format=%D --states=idle) == ${#nodes[@]} ]]"
touch ready
wait
