#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains the same models with several builds of train_gpt. Compares every step's loss bits and the hash of the trained
# parameters. A PROGRAM is the path of a train_gpt, or a command of several words ("qemu-aarch64-static .../train_gpt").
#   scripts/compare_programs.sh [--large] PROGRAM PROGRAM...
# 1. Trains small models of odd shapes for ten steps, in every precision. --large also trains 40 steps of quickstart.ini and
#    100 steps of shakespeare_cpu.ini.
# 2. Each program resumes a run from the snapshot of the previous program. The first program finishes it. Then each build's
#    generate, which is in the folder of its train_gpt, generates a text with the model.
# 3. Each program with MPI runs one rank, and the first program the other rank, with dist.shard = none and full.
# Prints a line for each comparison. Exits with code 1 at the first difference.
set -euo pipefail
large=
if [[ ${1:-} == --large ]]; then
  large=yes
  shift
fi
(($# > 1)) || { sed -n '5p' "$0" | cut -c 5- >&2; exit 2; }
programs=("$@")
# start_ranks.sh looks for programs in LOCKSTEP_BIN and in the builds of this tree.
if [[ -x $1 ]]; then
  LOCKSTEP_BIN=$(dirname "$(realpath "$1")")
  export LOCKSTEP_BIN
fi
# shellcheck disable=SC1091
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/start_ranks.sh"
folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT

# The settings of all runs. The text is built in. Two replicas allow one or two ranks.
common=(data.dataset=sample dist.replicas=2 train.threads=1 train.sample_every=0)
tiny=("${common[@]}" model.n_layer=2 model.n_head=2 model.n_embd=36 data.block_size=20 train.batch_size=3 train.steps=10
  train.warmup_steps=2 train.eval_every=5 data.train_split=0.9997)
small=(
  "train.precision=fp32 model.dropout=0.1"
  "train.precision=bf16 train.accumulate=3"
  "train.precision=fp16 model.dropout=0.2 model.bias=true model.activation=gelu_tanh"
  "train.precision=fp32 train.accumulate=5 train.batch_size=5 model.n_embd=30 model.n_head=3 data.block_size=33"
  "train.precision=bf16 model.dropout=0.3 model.n_layer=1 data.block_size=67 model.tie_weights=false"
  "train.precision=fp16 train.logit_rows=17 model.n_embd=50 model.n_head=5 train.schedule=wsd"
  "train.precision=fp32 model.n_layer=1 data.block_size=280 train.batch_size=1 train.beta2=0.95"
)

# start COMMAND ARGUMENT...: runs COMMAND, which is a program's path or a command of several words.
start() {
  if [[ -x $1 ]]; then
    "$@"
  else
    # shellcheck disable=SC2086
    $1 "${@:2}"
  fi
}

# hash_of RUN: prints a hash of all losses and of the trained parameters in 16 digits. Fails if the run did not finish.
hash_of() {
  grep -q '"parameters_hash":' "$1/metrics.jsonl" || { echo "$1: the run did not finish" >&2; return 1; }
  grep -oE '"(loss_bits|val_loss_bits|parameters_hash)":"[0-9a-f]+"' "$1/metrics.jsonl" | sha256sum | cut -c 1-16
}

# expect NAME RUN HASH: exits with an error unless the run has this hash.
expect() {
  local found
  found=$(hash_of "$2")
  if [[ $found != "$3" ]]; then
    echo "$1: the hash is $found instead of $3" >&2
    exit 1
  fi
}

# train COMMAND RUN SETTING...: trains a run with the settings.
train() {
  start "$1" "${@:3}" "log.dir=$2" >"$2.log" 2>&1 || { echo "$1 ${*:3}:" >&2; tail -n 5 "$2.log" >&2; exit 1; }
}

# The hash of each model that compare() has trained, by the model's name.
declare -A hashes=()

# compare NAME SETTING...: trains the whole run with each program and compares the hashes.
compare() {
  local -r name=$1
  shift
  local -r run=$folder/run
  local hash='' program
  for program in "${programs[@]}"; do
    rm -rf "$run"
    train "$program" "$run" "$@" snapshot.path=none
    hash=${hash:-$(hash_of "$run")}
    expect "$program, $name" "$run" "$hash"
  done
  hashes[$name]=$hash
  echo "$hash  $name"
}

# hand_over NAME SETTING...: each program trains three steps of one run. The first program also trains the last steps.
hand_over() {
  local -r name=$1
  shift
  local -r undisturbed=$folder/undisturbed handed=$folder/handed
  rm -rf "$undisturbed" "$handed"
  local -r steps=$((3 * ${#programs[@]} + 3))
  train "${programs[0]}" "$undisturbed" "$@" "train.steps=$steps" snapshot.path=none
  local until=0 program hash
  hash=$(hash_of "$undisturbed")
  for program in "${programs[@]}" "${programs[0]}"; do
    until=$((until + 3))
    # train.decay_steps keeps the learning rates of the whole run although train.steps grows.
    train "$program" "$handed" "$@" "train.steps=$until" "train.decay_steps=$steps"
  done
  expect "handed from program to program" "$handed" "$hash"
  local text='' other
  for program in "${programs[@]}"; do
    other=$(start "${program%train_gpt}generate" --snapshot "$handed" --tokens 60 --top-k 9 --top-p 0.9 2>"$handed.log") ||
      { echo "generate beside $program:" >&2; tail -n 5 "$handed.log" >&2; exit 1; }
    text=${text:-$other}
    [[ -n $other && $other == "$text" ]] || { printf '%s wrote:\n%s\nand not:\n%s\n' "$program" "$other" "$text" >&2; exit 1; }
  done
  echo "$hash  $name, $steps steps, handed from program to program and back to the first; one text by all"
}

# has_mpi COMMAND: succeeds if the program was built with MPI.
has_mpi() {
  local version
  version=$(start "$1" --version) || { echo "$1 --version failed" >&2; exit 1; }
  [[ $version == *"with MPI"* ]]
}

# together NAME SETTING...: trains a model of compare() again. One rank is the first program, the other rank is another
# program. Programs without MPI are skipped.
together() {
  local -r name=$1 run=$folder/together
  local -r hash=${hashes[$name]}
  shift
  local program stage
  # shellcheck disable=SC2016
  local -r of_this_rank='exec "${@:1+OMPI_COMM_WORLD_RANK:1}" "${@:3}"'
  for program in "${programs[@]:1}"; do
    has_mpi "$program" || continue
    for stage in none full; do
      rm -rf "$run"
      local keys=("$@" "dist.shard=$stage" "log.dir=$run" snapshot.path=none)
      # bash starts the rank's program, because Debian 13's mpirun crashes at a colon between two programs.
      start_ranks 2 bash -c "$of_this_rank" bash "${programs[0]}" "$program" "${keys[@]}" >"$run.log" 2>&1 ||
        { tail -n 5 "$run.log" >&2; exit 1; }
      expect "a rank of $program, dist.shard=$stage" "$run" "$hash"
    done
    echo "$hash  $name, a rank of the first program and one of $program, dist.shard=none and full"
  done
}

for settings in "${small[@]}"; do
  # shellcheck disable=SC2086
  compare "$settings" "${tiny[@]}" $settings
done
if [[ -n $large ]]; then
  compare "quickstart.ini, 40 steps" --config quickstart.ini "${common[@]}" dist.replicas=4 train.steps=40 train.warmup_steps=10 \
    data.train_split=0.99 train.threads=0
  compare "shakespeare_cpu.ini, 100 steps" --config shakespeare_cpu.ini "${common[@]}" dist.replicas=4 train.steps=100 \
    data.train_split=0.99 train.threads=0
fi
for precision in fp32 bf16 fp16; do
  # A run evaluates after its last step. eval_every=3 makes each program's last step an evaluation step of the whole run.
  hand_over "$precision" "${tiny[@]}" "train.precision=$precision" model.dropout=0.1 train.eval_every=3
done
if command -v mpirun >/dev/null && has_mpi "${programs[0]}"; then
  for settings in "${small[@]:0:2}"; do
    # shellcheck disable=SC2086
    together "$settings" "${tiny[@]}" $settings
  done
fi
echo "equal bits by ${#programs[@]} programs"
