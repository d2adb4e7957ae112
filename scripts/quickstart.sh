#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing packages, builds, trains a small GPT on two ranks and generates text with it. Takes a few minutes.
#   scripts/quickstart.sh             Shakespeare from $LOCKSTEP_DATA_DIR or the network; without it the built-in sample
#   scripts/quickstart.sh --offline   the built-in sample text
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

offline=no
if [[ ${1:-} == --offline ]]; then
  offline=yes
elif (($# > 0)); then
  echo "usage: scripts/quickstart.sh [--offline]" >&2
  exit 2
fi

scripts/install_deps.sh
cmake --preset cpu --log-level=WARNING
cmake --build --preset cpu --target train_gpt generate
programs=build/cpu/bin

# shellcheck disable=SC1091
source scripts/start_ranks.sh
ranks=()
if command -v mpirun >/dev/null; then
  ranks=(start_ranks 2)
else
  echo "quickstart: mpirun was not found, so the model trains on one rank"
fi

# train <name of the run> [override]...: trains a run.
train() {
  local run=runs/$1
  shift
  "${ranks[@]}" "$programs/train_gpt" --config configs/quickstart.ini "log.dir=$run" "$@"
}

train_on_sample() {
  run=quickstart_sample
  dataset=sample
  train "$run" data.dataset=sample
}

run=quickstart
dataset=shakespeare
if [[ $offline == yes ]]; then
  echo "quickstart: training on the built-in sample text"
  train_on_sample
else
  # A trial of one step checks that the text is available. Its output is captured; the run's output is not.
  trial=$(mktemp --directory)
  status=0
  said=$("$programs/train_gpt" --config configs/quickstart.ini "log.dir=$trial" snapshot.path=none train.steps=1 \
    train.warmup_steps=0 train.sample_every=0 train.eval_every=-1 2>&1) || status=$?
  rm -rf "$trial"
  if ((status == 2)) && [[ $said == *data.dataset* ]]; then
    echo "$said"
    echo "quickstart: Shakespeare's text is not available (see above); training on the built-in sample instead"
    train_on_sample
  else
    train "$run"
  fi
fi

echo
echo "The model writes:"
echo
"$programs/generate" --snapshot "runs/$run"

cat <<NEXT

What to try next:
  every setting               $programs/train_gpt --help
  another text                $programs/generate --help
  the loss, step by step      runs/$run/metrics.jsonl
  the tests                   scripts/test.sh
  the same bits on 4 ranks    source scripts/env.sh
                              mpirun -np 4 train_gpt --config quickstart.ini log.dir=runs/four data.dataset=$dataset
NEXT
