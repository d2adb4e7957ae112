# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Functions for the batch files of this folder, which source it:
#   run_ranks <program> [arguments]   starts the job's ranks with the site's launcher
#   run_step <command> [arguments]    runs any command
# Both forward the signals that the batch shell receives. A job that stopped after a snapshot (exit code 75) is requeued.
# The batch file exits with the command's exit code.

slurm_folder=$(dirname "${BASH_SOURCE[0]}")
# shellcheck disable=SC1091
source "$slurm_folder/read_site.sh"
# env.sh puts the programs in PATH and makes srun start ranks with PMIx.
# shellcheck disable=SC1091
source "$slurm_folder/../env.sh"

# In a job array one task's SLURM_JOB_ID is also the number of the whole array. This number names only the task.
job=$SLURM_JOB_ID
if [[ -n ${SLURM_ARRAY_JOB_ID:-} ]]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
# A sourced file has the batch file's arguments.
batch_arguments=("$@")

# Since Slurm 22.05 a step does not inherit this from its job.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# With a count above 0 a run resumes from its snapshot, even with snapshot.resume=never.
export LOCKSTEP_RESTART_COUNT=$((${LOCKSTEP_RESTART_COUNT:-0} + ${SLURM_RESTART_COUNT:-0}))

run_ranks() {
  case ${launcher:-srun} in
    srun) run_step srun --wait=30 "$@" ;;
    mpirun) run_step mpirun ${SLURM_NTASKS:+-np "$SLURM_NTASKS"} --bind-to none "$@" ;;
    *)
      echo "step.sh: launcher=$launcher of ${site_file:-site.sh} is unknown: set it to srun or mpirun" >&2
      exit 2
      ;;
  esac
}

run_step() {
  local step='' status=0 task_command=("$@")
  if [[ -n ${SLURM_ARRAY_JOB_ID:-} ]]; then fit_to_task "$@"; fi
  trap 'if [[ -n $step ]]; then kill -USR1 "$step" 2>/dev/null || true; fi' USR1 TERM
  "${task_command[@]}" &
  step=$!
  # A signal ends `wait` before the step ends. The last `wait` returns the step's own status.
  while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done
  wait "$step" || status=$?
  # A cancelled job is no longer RUNNING, so it is not requeued.
  if ((status == 75)) && [[ $(squeue --noheader --jobs="$job" --format=%T) == RUNNING ]]; then resume_later; fi
  exit "$status"
}

# Sets task_command to the command of this task of a job array. Replaces %a in every argument by the task's number. The
# folders of train_gpt and train_mlp get a subfolder for each task, unless they contain %a.
fit_to_task() {
  local word is_training=false has_folder=false
  task_command=()
  for word in "$@"; do
    case $word in
      train_gpt | train_mlp | */train_gpt | */train_mlp) is_training=true ;;
      log.dir=*) has_folder=true ;;
    esac
    case $word in
      *%a* | snapshot.path=none | snapshot.path=auto) ;;
      log.dir=* | snapshot.path=*) word=${word%/}/%a ;;
    esac
    task_command+=("${word//%a/$SLURM_ARRAY_TASK_ID}")
  done
  if $is_training && ! $has_folder; then task_command+=("log.dir=runs/$SLURM_JOB_NAME/$SLURM_ARRAY_TASK_ID"); fi
}

# Requeues the job, or submits the batch file again if Slurm refuses that.
resume_later() {
  local refusal next
  # Slurm immediately sends SIGTERM to all processes of a requeued job, also to scontrol.
  trap '' TERM
  if refusal=$(scontrol requeue "$job" 2>&1); then
    echo "stopped after a snapshot: job $job goes back into the queue"
  elif next=$(submit_successor 2>&1); then
    # sbatch prints warnings before the number and may print the cluster's name after it.
    next=${next##*$'\n'}
    echo "stopped after a snapshot: job $job cannot be requeued (${refusal##*$'\n'}), so job ${next%%;*} resumes it"
  else
    echo "stopped after a snapshot: job $job cannot be requeued (${refusal##*$'\n'}) or submitted again" \
      "(${next##*$'\n'}): submit it yourself to resume"
  fi
}

# Submits the batch file with the job's own arguments and resources. The new job begins when this job has ended. Its output
# is appended to this job's output. Prints the new job's number.
submit_successor() {
  local row name command limit features gres details options=()
  for row in account:SLURM_JOB_ACCOUNT qos:SLURM_JOB_QOS partition:SLURM_JOB_PARTITION \
    reservation:SLURM_JOB_RESERVATION job-name:SLURM_JOB_NAME nodes:SLURM_JOB_NUM_NODES ntasks:SLURM_NTASKS \
    ntasks-per-node:SLURM_NTASKS_PER_NODE cpus-per-task:SLURM_CPUS_PER_TASK mem:SLURM_MEM_PER_NODE \
    mem-per-cpu:SLURM_MEM_PER_CPU mem-per-gpu:SLURM_MEM_PER_GPU gpus-per-node:SLURM_GPUS_PER_NODE \
    array:SLURM_ARRAY_TASK_ID; do
    name=${row#*:}
    if [[ -n ${!name:-} ]]; then options+=("--${row%%:*}=${!name}"); fi
  done
  read -r limit features gres < <(squeue --noheader --jobs="$job" --format='%l %f %b')
  options+=("--time=$limit")
  if [[ $features != '(null)' ]]; then options+=("--constraint=$features"); fi
  if [[ -z ${SLURM_GPUS_PER_NODE:-} && $gres == gres[:/]* ]]; then options+=("--gres=${gres#gres[:/]}"); fi
  command=$(squeue --noheader --jobs="$job" --format=%o)
  details=$(scontrol show job "$job")
  env --unset=SLURM_RESTART_COUNT sbatch --parsable --dependency="afterany:$job" "${options[@]}" --open-mode=append \
    --output="$(sed -n 's/^ *StdOut=//p' <<<"$details")" --error="$(sed -n 's/^ *StdErr=//p' <<<"$details")" \
    --export="ALL,LOCKSTEP_RESTART_COUNT=$((LOCKSTEP_RESTART_COUNT + 1))" \
    "${command%" ${batch_arguments[*]}"}" "${batch_arguments[@]}"
}
