# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
# Settings of your cluster. Copy this file to site.sh in this folder, or to another path and set LOCKSTEP_SITE to it. Keep
# the lines that your cluster needs. submit reads it on the login node. Each job reads it on its first node.

# Modules that the programs were built with. A batch shell may not define `module`; modules.sh defines it.
# source /etc/profile.d/modules.sh
# module load gcc/12.3 openmpi/4.1.6

# Options for sbatch. The command line overrides them, and they override the lines of a batch file.
# export SBATCH_ACCOUNT=my_project
# export SBATCH_QOS=normal
# export SBATCH_PARTITION=gpu
# export SBATCH_MEM_PER_NODE=64G      # --mem; the default on many clusters is 1 to 4 GB per core
# export SBATCH_TIMELIMIT=12:00:00
# export SBATCH_CONSTRAINT=ib

# The GPU type, for clusters whose sbatch requires it. submit turns --gpus-per-node=4 of a batch file into h100:4.
# gpu_type=h100

# The launcher of the ranks: srun (the default, needs Slurm's PMIx) or mpirun (Open MPI 4.1 or 5).
# launcher=mpirun

# The folder of the programs, if they are not in this tree or installation.
# export LOCKSTEP_BIN=/apps/lockstep/bin

# The network of the nodes: docs/slurm.md has a section about UCX and InfiniBand.
# export UCX_NET_DEVICES=mlx5_0:1
# export NCCL_SOCKET_IFNAME=ib0
