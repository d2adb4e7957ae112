#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all checks that need a GPU, within a time limit. Builds the preset cuda for this machine's GPU. Runs its tests, the
# three checkers of compute-sanitizer, comparisons of bits over ranks and graphs, and the benchmarks. Appends the figures to
# bench/results/<GPU>.csv. Parts for which no time is left are reported as not run.
#   scripts/gpu_check.sh [--seconds N] [--only PART,PART,...]        N is 1800 by default
# Exit status: 0 no part failed (some may be skipped, out of time or not run), 1 a part failed, 2 there is no GPU or the
# command line is wrong.
# Needs no network. Shakespeare's text is read from $LOCKSTEP_DATA_DIR. Logs are in build/gpu_check.
# shellcheck disable=SC2016,SC2317  # sh expands the arguments of xargs; a part is called by its name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=(build tests memcheck racecheck synccheck bits curves kernels allreduce pytorch gpt2 shakespeare)
# Time limit of each part in percent of the total. Later parts can use the time that a part leaves.
declare -A share=([build]=40 [tests]=15 [memcheck]=6 [racecheck]=6 [synccheck]=6 [bits]=8 [curves]=5 [kernels]=15
  [allreduce]=5 [pytorch]=25 [gpt2]=8 [shakespeare]=25)

seconds=1800
only=
while (($# > 0)); do
  case "$1" in
    --seconds) seconds=${2:?--seconds needs a number} ;;
    --only) only=${2:?--only needs names of parts} ;;
    *)
      echo "usage: scripts/gpu_check.sh [--seconds N] [--only PART,PART,...]; parts: ${parts[*]}" >&2
      exit 2
      ;;
  esac
  shift 2
done
for name in ${only//,/ }; do
  if [[ -z ${share[$name]:-} ]]; then
    echo "gpu_check: part $name is unknown; the parts are ${parts[*]}" >&2
    exit 2
  fi
done

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
if [[ $gpu != *,* ]]; then
  echo "gpu_check: no GPU was found: nvidia-smi lists none" >&2
  exit 2
fi
device=${gpu%,*}
driver=${gpu##*, }
table=bench/results/$(tr '[:upper:]' '[:lower:]' <<<"$device" | tr -c 'a-z0-9\n' '_').csv
bin=build/cuda/bin
logs=build/gpu_check
runs=runs/gpu_check
mkdir -p "$logs" "$runs"
# The programs may not be built yet.
# shellcheck disable=SC1091
source scripts/start_ranks.sh 2>/dev/null || true
export LOCKSTEP_SHARE_GPU=1
# The folder that keeps corpora and tuned matmul plans between runs.
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-${HOME:-$PWD/$logs}/.cache}

# append <benchmark> <case> <shape> <dtype> <rate> <unit>: appends a figure that has no time in us.
append() {
  local columns=date,commit,device,driver,benchmark,case,shape,dtype,us,spread,rate,unit,ceiling,percent,peer,peer_rate
  local commit
  commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
  if [[ ! -s $table ]]; then echo "$columns" >"$table"; fi
  echo "$(date -u +%Y-%m-%dT%H:%MZ),$commit,$device,$driver,$1,$2,$3,$4,,,$5,$6,,,," >>"$table"
}

# values <field> <metrics.jsonl>: prints the field's values of all lines that contain it.
values() { sed -n "s/.*\"$1\":\\([-+.0-9a-z]*\\).*/\\1/p" "$2"; }
median() { sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }
bits() { grep -oE '"(loss_bits|val_loss_bits|parameters_hash)":"[0-9a-f]+"' "$1"; }

# train <folder below runs/gpu_check> <ranks> <argument>...: trains a new run.
train() {
  local run=$runs/$1 ranks=$2
  shift 2
  rm -rf "$run"
  local command=("$bin/train_gpt")
  if ((ranks > 1)); then command=(start_ranks "$ranks" "${command[@]}"); fi
  "${command[@]}" "$@" log.dir="$run" --fresh snapshot.path=none
}

part_build() {
  cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native
  cmake --build --preset cuda --parallel "$(nproc)"
}

part_tests() { ctest --preset cuda --label-regex gpu --parallel 8; }

# Runs the kernels' test programs under a sanitizer, one per core at a time. A program is stopped after half of the part's
# time and reported as cut off.
sanitize() {
  local tool=$1 limit=$2 source name status
  local names=() cut=0 failed=0
  for source in tests/kernels/cuda/*_test.cpp; do names+=("$(basename "$source" _test.cpp)"); done
  printf '%s\n' "${names[@]}" | xargs --max-args=1 --max-procs="$(nproc)" sh -c '
    status=0
    timeout --kill-after=5 "$1" "$2" --tool "$3" --error-exitcode 9 --print-limit 20 "$4/$6_cuda_tests" \
      --gtest_brief=1 --gtest_fail_fast >"$5/$3_$6.log" 2>&1 || status=$?
    echo "$status" >"$5/$3_$6.status"' _ "$((limit / 2))" "$sanitizer" "$tool" "$bin" "$logs"
  for name in "${names[@]}"; do
    status=$(<"$logs/${tool}_$name.status")
    echo "$tool $name: status $status"
    if ((status == 124 || status == 137)); then
      cut=$((cut + 1))
    elif ((status != 0)); then
      failed=1
      tail -n 20 "$logs/${tool}_$name.log"
    fi
  done
  echo "$tool: $cut of ${#names[@]} programs were cut off"
  return "$failed"
}
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
part_memcheck() { sanitize memcheck "$1"; }
part_racecheck() { sanitize racecheck "$1"; }
part_synccheck() { sanitize synccheck "$1"; }

# Trains the same run three times on one rank, once without graphs, and on two and four ranks that share the GPU.
part_bits() {
  local arguments=(--config shakespeare.ini data.dataset=sample train.device=cuda train.precision=bf16 train.steps=20)
  arguments+=(train.warmup_steps=5 train.sample_every=0)
  train bits/1 1 "${arguments[@]}"
  train bits/1_again 1 "${arguments[@]}"
  train bits/1_once_more 1 "${arguments[@]}"
  train bits/1_without_graph 1 "${arguments[@]}" train.graph=false
  if command -v mpirun >/dev/null; then
    train bits/2 2 "${arguments[@]}"
    train bits/4 4 "${arguments[@]}"
  fi
  local run first=$runs/bits/1/metrics.jsonl count=0
  for run in "$runs"/bits/*/metrics.jsonl; do
    if ! cmp <(bits "$first") <(bits "$run"); then
      echo "the bits of $run differ from those of $first"
      return 1
    fi
    count=$((count + 1))
  done
  append gpu_check "equal bits over ranks graphs and repeats" shakespeare.ini bf16 "$count" runs
}

# Trains 50 steps in bf16 on the GPU and in fp32 on the CPU. No loss may differ by more than 0.02.
part_curves() {
  local arguments=(--config quickstart.ini data.dataset=sample train.steps=50 train.warmup_steps=10)
  arguments+=(train.sample_every=0)
  train curves/cuda 1 "${arguments[@]}" train.device=cuda train.precision=bf16
  train curves/cpu 1 "${arguments[@]}" train.device=cpu
  local worst
  worst=$(paste <(values loss "$runs/curves/cuda/metrics.jsonl") <(values loss "$runs/curves/cpu/metrics.jsonl") |
    awk '{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > worst) worst = d } END { if (NR != 50) exit 1; print worst + 0 }')
  echo "largest difference of a loss over 50 steps: $worst"
  append gpu_check "largest difference from the CPU's fp32 loss" "quickstart.ini 50 steps" bf16 "$worst" nats
  awk -v worst="$worst" 'BEGIN { exit !(worst <= 0.02) }'
}

part_kernels() { "$bin/bench_kernels" --device cuda --append --threads "$(nproc)"; }

part_allreduce() { start_ranks 2 "$bin/bench_allreduce" --device cuda --append; }

part_pytorch() { python3 bench/compare_pytorch.py --device cuda --program "$bin/train_gpt" --seconds "$1"; }

part_gpt2() {
  train gpt2 1 --config gpt2_124m.ini train.tune_matmul=true train.steps=50 train.warmup_steps=10 train.eval_every=0
  local metrics=$runs/gpt2/metrics.jsonl rate
  rate=$(values tokens_per_s "$metrics" | tail -n +11 | median)
  append gpu_check "gpt2_124m.ini tokens per second" "8x64x1024 50 steps" bf16 "$rate" tokens/s
  append gpu_check "gpt2_124m.ini loss" "step 50" bf16 "$(values loss "$metrics" | tail -n 1)" nats
}

part_shakespeare() {
  train shakespeare 1 --config shakespeare.ini train.precision=bf16 dist.replicas=1 train.batch_size=64 \
    train.tune_matmul=true train.sample_every=0
  local metrics=$runs/shakespeare/metrics.jsonl step loss rate
  while read -r step loss; do
    append gpu_check "shakespeare.ini validation loss" "step $step" bf16 "$loss" nats
  done < <(sed -n 's/.*"step":\([0-9]*\),.*"val_loss":\([0-9.]*\).*/\1 \2/p' "$metrics")
  rate=$(values tokens_per_s "$metrics" | tail -n +101 | median)
  append gpu_check "shakespeare.ini tokens per second" 1x64x256 bf16 "$rate" tokens/s
  values val_loss "$metrics" | sort -g | head -n 1 | awk '{ print "best validation loss " $1; exit !($1 <= 1.48) }'
}

# obstacle <part>: prints why a part cannot run on this machine, or nothing.
obstacle() {
  case "$1" in
    *check) [[ -x $sanitizer ]] || echo "no compute-sanitizer" ;;
    allreduce) command -v mpirun >/dev/null || echo "no mpirun" ;;
    pytorch) python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || echo "no PyTorch with CUDA" ;;
    shakespeare)
      [[ -e ${LOCKSTEP_DATA_DIR:-}/tinyshakespeare.txt ]] ||
        compgen -G "$XDG_CACHE_HOME/lockstep/[0-9a-f]*.txt" >/dev/null || echo "no text in LOCKSTEP_DATA_DIR"
      ;;
  esac
}

if [[ ${GPU_CHECK_PART:-} ]]; then
  "part_$GPU_CHECK_PART" "$GPU_CHECK_LIMIT"
  exit
fi

# Each part runs in its own shell, so that its first failing command ends it and its time limit can stop all of it.
declare -A result
failed=0
echo "gpu_check: $device, driver $driver, $seconds s"
SECONDS=0
for name in "${parts[@]}"; do
  if [[ -n $only && ,$only, != *,$name,* ]]; then continue; fi
  left=$((seconds - SECONDS))
  limit=$((seconds * share[$name] / 100))
  if [[ -n $only ]] || ((limit > left)); then limit=$left; fi
  if [[ ${result[build]:-passed} != passed* ]]; then
    result[$name]="not run: there is no build"
  elif ((left < 10)); then
    result[$name]="not run: out of time"
  elif reason=$(obstacle "$name") && [[ -n $reason ]]; then
    result[$name]="skipped: $reason"
  else
    echo "=== $name, at most $limit s"
    begin=$SECONDS
    status=0
    GPU_CHECK_PART=$name GPU_CHECK_LIMIT=$((limit > 15 ? limit - 5 : limit)) \
      timeout --kill-after=10 "$limit" scripts/gpu_check.sh >"$logs/$name.log" 2>&1 || status=$?
    took=$((SECONDS - begin))
    if ((status == 0)); then
      result[$name]="passed in $took s"
    elif ((status == 124 || status == 137)); then
      result[$name]="out of time after $took s"
    else
      result[$name]="FAILED in $took s, see $logs/$name.log"
      failed=1
    fi
    tail -n 15 "$logs/$name.log"
  fi
done

echo
echo "gpu_check: $device, $SECONDS of $seconds s; figures in $table"
for name in "${parts[@]}"; do
  if [[ -n ${result[$name]:-} ]]; then printf '%-12s %s\n' "$name" "${result[$name]}"; fi
done
exit "$failed"
