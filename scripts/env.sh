# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Makes a shell or a batch file ready; bash and zsh, from any directory, as often as you like:
#   source scripts/env.sh
# - The programs of LOCKSTEP_BIN, of this tree's builds, or of this installation come first in PATH.
# - srun starts ranks by PMIx, unless SLURM_MPI_TYPE is set.
# - mpirun of Open MPI 4 and 5 may be started by root, and starts more ranks than there are cores. In a Slurm allocation it
#   keeps to the slots of the allocation.

_lockstep_environment() {
  local here build folder others found=
  if [ -n "${ZSH_VERSION:-}" ]; then
    here=$1
  else
    here=${BASH_SOURCE[0]}
  fi
  # Neither CDPATH nor a hook of the shell has a say in it.
  here=$(CDPATH='' cd -- "$(dirname -- "$here")" >/dev/null && pwd) || return
  build=$(dirname -- "$here")/build
  # The last one found comes first. The first is that of an installation, whose env.sh lies in share/lockstep.
  for folder in "${here%/share/lockstep}/bin" "$build/cpu/bin" "$build/cuda/bin" "${LOCKSTEP_BIN:-}"; do
    # LOCKSTEP_BIN may have other programs alone.
    if [ -x "$folder/train_gpt" ] || { [ "$folder" = "${LOCKSTEP_BIN:-}" ] && [ -d "$folder" ]; }; then
      found=$folder
      others=":$PATH:"
      others=${others//":$folder:"/:}
      export PATH="$folder${others%:}"
    fi
  done
  if [ -z "$found" ] && ! command -v train_gpt >/dev/null; then
    echo "env.sh: there is no train_gpt in LOCKSTEP_BIN (${LOCKSTEP_BIN:-unset}), $build/{cuda,cpu}/bin or PATH: build it" \
      "(cmake --preset cpu && cmake --build --preset cpu), or set LOCKSTEP_BIN to the programs' folder" >&2
    return 1
  fi
  export SLURM_MPI_TYPE="${SLURM_MPI_TYPE:-pmix}"
}

# Open MPI 4's mpirun reads variables that begin with OMPI_. Open MPI 5's mpirun reads variables that begin with PRTE_, and
# its ranks read OMPI_MCA_. Each version ignores the variables of the other.
_lockstep_mpirun() {
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  # On one host Open MPI 5 else prints a line for each rank if it cannot pair the host's interfaces.
  if [ -z "${SLURM_JOB_ID:-}" ]; then
    export OMPI_MCA_reachable="${OMPI_MCA_reachable:-weighted}"
    export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe:-1}"
    export PRTE_MCA_rmaps_default_mapping_policy="${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}"
  fi
}

# srun passes on whole lines, and the ranks cannot see where they end up: for a person at a terminal it passes on every
# byte, so that a bar can be drawn, and tells them. Batch files start srun itself.
case $- in
  *i*)
    srun() {
      if [ -t 2 ] && [[ " $* " != *" --pty "* ]]; then
        LOCKSTEP_TERMINAL="${COLUMNS:-80} $(if [ -t 1 ]; then echo output; fi)" command srun --unbuffered "$@"
      else
        command srun "$@"
      fi
    }
    ;;
esac

_lockstep_mpirun
_lockstep_environment "$0"
