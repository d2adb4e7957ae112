#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains one configuration on 1, 2, 3 and 4 ranks, by default without sharding and recomputation. Compares every step's loss
# bits and the hash of the trained parameters within each precision. Needs a build in build/cpu.
#   scripts/compare_ranks.sh [--ranks "1 2 4"] [--shard "none optimizer gradients full full:2"] [--recompute "none block"]
#                            [--precision "fp32 bf16"] [CONFIG [section.key=value ...]]
# CONFIG is shakespeare_cpu.ini by default. full:2 is dist.shard=full in groups of two ranks (dist.group=2). It is skipped
# if one group has all ranks, or if the number of ranks is not a multiple of the group.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ranks="1 2 3 4" shard=none recompute=none precision=fp32
while [[ ${1:-} =~ ^--(ranks|shard|recompute|precision)$ ]]; do
  declare "${1#--}=$2"
  shift 2
done
config=${1:-shakespeare_cpu.ini}
shift || true
mkdir -p runs
# shellcheck disable=SC1091
source scripts/start_ranks.sh

bits() { grep -oE '"(loss_bits|parameters_hash)":"[0-9a-f]+"' "$1"; }

# train PRECISION RANKS SHARD RECOMPUTE [section.key=value ...]: trains, and compares with the first run in this precision.
train() {
  local -r name="$1, $2 ranks, shard = $3, recompute = $4" run=runs/compare_ranks/$1-$2-${3/:/-}-$4
  local -r settings=("train.precision=$1" "dist.shard=${3%:*}" "train.recompute=$4" log.dir="$run" snapshot.path=none)
  local group=()
  [[ $3 == *:* ]] && group=("dist.group=${3#*:}")
  rm -rf "$run"
  start_ranks "$2" build/cpu/bin/train_gpt --config "$config" "${@:5}" \
    "${settings[@]}" "${group[@]}" 2>"$run.log" || { tail -n 5 "$run.log" >&2; exit 1; }
  local -r steps=$(bits "$run/metrics.jsonl" | grep -c loss_bits)
  echo "$name: $steps steps, $(bits "$run/metrics.jsonl" | tail -n 1)," \
    "$(grep -oE '"(val_)?loss":[0-9.]+' "$run/metrics.jsonl" | tail -n 1)"
  first=${first:-$run}
  cmp -s <(bits "$first/metrics.jsonl") <(bits "$run/metrics.jsonl") && return
  echo "the bits differ from those of ${first##*/}:" >&2
  diff <(bits "$first/metrics.jsonl") <(bits "$run/metrics.jsonl") | head -n 4 >&2
  exit 1
}

# cuts_evenly RANKS SHARD: succeeds if the ranks form several equal groups, or if SHARD has no group.
cuts_evenly() { [[ $2 != *:* ]] || (($1 > ${2#*:} && $1 % ${2#*:} == 0)); }

mkdir -p runs/compare_ranks
for p in $precision; do
  first=
  for n in $ranks; do
    for s in $shard; do
      cuts_evenly "$n" "$s" || continue
      for r in $recompute; do train "$p" "$n" "$s" "$r" "$@"; done
    done
  done
done
echo "equal bits on $ranks ranks, shard = $shard, recompute = $recompute, in $precision"
