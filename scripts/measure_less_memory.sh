#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the first and the last table below "Measured" in docs/tutorial/5_less_memory.md and prints their rows, in two
# minutes. The machine must be idle. Peaks are VmHWM, the highest memory of a process. The time is the median of a run's steps.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/build/cpu/bin
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

gpt=("$bin/train_gpt" --config quickstart.ini data.dataset=sample train.batch_size=128 dist.replicas=1 train.threads=1
  train.steps=9 train.warmup_steps=0 train.eval_every=-1 train.sample_every=0 snapshot.path=none)
own=("$bin/5_less_memory" 9)

median() { sort -n | awk '{ all[NR] = $1 } END { printf "%.2f", all[int((NR + 1) / 2)] }'; }

of_gpt() {
  rm -rf run
  "${gpt[@]}" "${@:2}" log.dir=run >out 2>&1 || { cat out >&2; exit 1; }
  local peaks seconds
  peaks=$(sed -n 's/^memory: at most \(.*\) a rank, planned \(.*\)$/\2 | \1/p' out)
  seconds=$(sed -n 's/.*"step_ms":\([0-9.]*\).*/\1/p' run/metrics.jsonl | awk '{ print $1 / 1000 }' | median)
  echo "| $1 | $peaks | $seconds |"
}

of_own() {
  local plan process now peak=0
  plan=$("${own[@]}" "${@:2}" --plan 1 | sed -n 's/^Plan | total: //p')
  "${own[@]}" "${@:2}" >out 2>&1 &
  process=$!
  while now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$process/status" 2>/dev/null) && [[ -n $now ]]; do
    peak=$((now / 1024))
    sleep 0.01
  done
  wait "$process" || { cat out >&2; exit 1; }
  echo "| $1 | $plan | $peak MiB | $(sed -n 's/.*| Step: \([-+.e0-9]*\) s$/\1/p' out | median) |"
}

of_gpt "without a remedy"
of_gpt "\`train.accumulate=4\`" train.accumulate=4
of_gpt "\`train.precision=bf16\`" train.precision=bf16
of_gpt "\`train.recompute=block\`" train.recompute=block
of_gpt "all three" train.accumulate=4 train.precision=bf16 train.recompute=block
echo
of_own "without a remedy"
of_own "\`--micro_batches 8\`" --micro_batches 8
of_own "\`--bf16 1\`" --bf16 1
of_own "\`--segments 4\`" --segments 4
of_own "all three" --micro_batches 8 --bf16 1 --segments 4
