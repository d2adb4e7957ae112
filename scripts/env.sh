# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sets up a shell or a batch file for Lockstep. Works in bash and zsh, from any directory, and may be repeated:
#   source scripts/env.sh
# - Puts the programs of LOCKSTEP_BIN, of this tree's builds, or of this installation first in PATH.
# - Makes srun start ranks with PMIx, unless SLURM_MPI_TYPE is set.
# - Lets root run mpirun of Open MPI 4 and 5. Lets every user start more ranks than cores. In a Slurm allocation mpirun
#   uses only the slots of the allocation.

_lockstep_environment() {
  local here build folder others found=
  if [ -n "${ZSH_VERSION:-}" ]; then
    here=$1
  else
    here=${BASH_SOURCE[0]}
  fi
  # CDPATH and shell hooks must not change the folder or print.
  here=$(CDPATH='' cd -- "$(dirname -- "$here")" >/dev/null && pwd) || return
  build=$(dirname -- "$here")/build
  # The last folder found is first in PATH. The first folder is an installation's bin, whose env.sh is in share/lockstep.
  for folder in "${here%/share/lockstep}/bin" "$build/cpu/bin" "$build/cuda/bin" "${LOCKSTEP_BIN:-}"; do
    # LOCKSTEP_BIN may contain other programs without train_gpt.
    if [ -x "$folder/train_gpt" ] || { [ "$folder" = "${LOCKSTEP_BIN:-}" ] && [ -d "$folder" ]; }; then
      found=$folder
      others=":$PATH:"
      others=${others//":$folder:"/:}
      export PATH="$folder${others%:}"
    fi
  done
  if [ -z "$found" ] && ! command -v train_gpt >/dev/null; then
    echo "env.sh: found no train_gpt in LOCKSTEP_BIN (${LOCKSTEP_BIN:-unset}), $build/{cuda,cpu}/bin or PATH: build it" \
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
  # Without this, Open MPI 5 on one host prints a line per rank if it cannot pair the host's interfaces.
  if [ -z "${SLURM_JOB_ID:-}" ]; then
    export OMPI_MCA_reachable="${OMPI_MCA_reachable:-weighted}"
    export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe:-1}"
    export PRTE_MCA_rmaps_default_mapping_policy="${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}"
  fi
}

# By default srun forwards whole lines, and ranks cannot detect a terminal. At an interactive terminal this function makes
# srun forward every byte and tells the ranks about the terminal, so that rank 0 can draw a progress bar. Batch files call
# srun directly.
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
