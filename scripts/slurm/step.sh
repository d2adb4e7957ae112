# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the batch files of this folder share; they source it.

# The programs are in PATH, and srun starts ranks by PMIx.
# shellcheck disable=SC1091
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"

# Since Slurm 22.05 a step does not inherit this from its job.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# A job that comes back from the queue goes on from its snapshot, even where a new one would start from scratch.
export LOCKSTEP_RESTART_COUNT=${SLURM_RESTART_COUNT:-0}

# run_step <command>...: runs it, passes on the signals that this shell gets, and puts the job back into the queue if
# the command was stopped after a snapshot (exit code 75). Ends the batch file with the command's exit code.
run_step() {
  local step='' status=0
  trap 'if [[ -n $step ]]; then kill -USR1 "$step" 2>/dev/null || true; fi' USR1 TERM
  "$@" &
  step=$!
  # A signal ends wait before the step ends; the last wait has the step's own status.
  while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done
  wait "$step" || status=$?
  # A job that somebody cancelled is no longer running, and stays cancelled.
  if ((status == 75)) && [[ $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) == RUNNING ]]; then
    echo "stopped after a snapshot: job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
  fi
  exit "$status"
}
