#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains one configuration on 1, 2, 3 and 4 ranks (or those given) and compares every step's loss bits and the hash
# of the trained parameters. Needs a build in build/cpu.
#   scripts/compare_ranks.sh [--ranks "1 2 4"] [CONFIG [section.key=value ...]]     default: shakespeare_cpu.ini
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ranks="1 2 3 4"
if [[ ${1:-} == --ranks ]]; then
  ranks=$2
  shift 2
fi
config=${1:-shakespeare_cpu.ini}
shift || true
mkdir -p runs
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none

bits() { grep -oE '"(loss_bits|parameters_hash)":"[0-9a-f]+"' "$1"; }

first=
for n in $ranks; do
  run=runs/compare_ranks/$n
  rm -rf "$run"
  mpirun --quiet -np "$n" --oversubscribe --bind-to none build/cpu/bin/train_gpt --config "$config" "$@" \
    log.dir="$run" snapshot.path=none 2>"runs/compare_ranks.$n.log" || { tail -n 5 "runs/compare_ranks.$n.log" >&2; exit 1; }
  steps=$(bits "$run/metrics.jsonl" | grep -c loss_bits)
  echo "$n ranks: $steps steps, $(bits "$run/metrics.jsonl" | tail -n 1), $(grep -o '"val_loss":[0-9.]*' "$run/metrics.jsonl" | tail -n 1)"
  if [[ -z $first ]]; then
    first=$run
  elif ! cmp -s <(bits "$first/metrics.jsonl") <(bits "$run/metrics.jsonl"); then
    echo "the bits differ from those on ${first##*/} ranks:" >&2
    diff <(bits "$first/metrics.jsonl") <(bits "$run/metrics.jsonl") | head -n 4 >&2
    exit 1
  fi
done
echo "equal bits on $ranks ranks"
