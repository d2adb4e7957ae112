#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks this project on a machine with a GPU and writes one file with the verdict of each part: build/gpu_check/report.md.
# Builds the preset cuda for the machine's GPUs and runs the tests. Compares the kernels' bits with those that a CPU predicted.
# Compares the bits of whole runs over ranks and shards in each precision. Kills a rank. Measures. Runs the checkers of
# compute-sanitizer. Appends figures to bench/results/<GPU>.csv. Parts for which no time is left are reported as not run.
#   scripts/gpu_check.sh [--seconds N] [--only PART,PART,...]        N is 1800 by default
#   scripts/gpu_check.sh --dry-run     prints the commands of each part and needs no GPU. If the preset emulated is built, checks
#                                      that its test programs exist and that train_gpt accepts the configurations
# Exit status: 0 no part failed (some may be skipped, out of time or not run), 1 a part failed, 2 there is no GPU or the
# command line is wrong.
# Needs no network. Shakespeare's text is read from $LOCKSTEP_DATA_DIR. Logs are in build/gpu_check.
# shellcheck disable=SC2016,SC2317  # sh expands the arguments of xargs; a part is called by its name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=(build predicted tests bits killed memcheck racecheck synccheck curves kernels allreduce pytorch gpt2 shakespeare)
# Time limit of each part in percent of the total. Later parts can use the time that a part leaves.
declare -A share=([build]=40 [predicted]=3 [tests]=15 [bits]=15 [killed]=5 [memcheck]=6 [racecheck]=6 [synccheck]=6 [curves]=5
  [kernels]=15 [allreduce]=5 [pytorch]=25 [gpt2]=10 [shakespeare]=25)

seconds=1800
only=
dry=${GPU_CHECK_DRY:-}
while (($# > 0)); do
  case "$1" in
    --seconds) seconds=${2:?--seconds needs a number} ;;
    --only) only=${2:?--only needs names of parts} ;;
    --dry-run)
      dry=yes
      shift
      continue
      ;;
    *)
      echo "usage: scripts/gpu_check.sh [--seconds N] [--only PART,PART,...] [--dry-run]; parts: ${parts[*]}" >&2
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

bin=build/cuda/bin
logs=build/gpu_check
runs=runs/gpu_check
report=$logs/report.md
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [[ $dry ]]; then
  gpu="a dry run, 0"
  gpus=2
else
  gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l || true)
  mkdir -p "$logs" "$runs"
fi
if [[ $gpu != *,* ]]; then
  echo "gpu_check: no GPU was found: nvidia-smi lists none" >&2
  exit 2
fi
device=${gpu%,*}
driver=${gpu##*, }
table=bench/results/$(tr '[:upper:]' '[:lower:]' <<<"$device" | tr -c 'a-z0-9\n' '_').csv
# The programs may not be built yet.
# shellcheck disable=SC1091
source scripts/start_ranks.sh 2>/dev/null || true
# Ranks may share a GPU, and from NCCL 2.30 on they then meet through NCCL.
export LOCKSTEP_SHARE_GPU=1 NCCL_MULTI_RANK_GPU_ENABLE=1
# The folder that keeps corpora and tuned matmul plans between runs.
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-${HOME:-$PWD/$logs}/.cache}

# run <command>...: runs it. A dry run prints it and looks for its program among those of the preset emulated.
run() {
  if [[ ! $dry ]]; then
    "$@"
    return
  fi
  echo "  $*"
  local word
  for word in "$@"; do
    if [[ $word == */bin/*_tests && -d build/emulated/bin && ! -x build/emulated/bin/${word##*/} ]]; then
      echo "gpu_check: the program ${word##*/} is not built" >&2
      return 1
    fi
  done
}

# append <benchmark> <case> <shape> <dtype> <rate> <unit>: appends a figure that has no time in us.
append() {
  if [[ $dry ]]; then return; fi
  local columns=date,commit,device,driver,benchmark,case,shape,dtype,us,spread,rate,unit,ceiling,percent,peer,peer_rate
  local commit
  commit=$(bench/commit.sh)
  if [[ ! -s $table ]]; then echo "$columns" >"$table"; fi
  echo "$(date -u +%Y-%m-%dT%H:%MZ),$commit,$device,$driver,$1,$2,$3,$4,,,$5,$6,,,," >>"$table"
}

# values <field> <metrics.jsonl>: prints the field's values of all lines that contain it.
values() { if [[ ! $dry ]]; then sed -n "s/.*\"$1\":\\([-+.0-9a-z]*\\).*/\\1/p" "$2"; fi; }
lines() { if [[ -e $1 ]]; then wc -l <"$1"; else echo 0; fi; }
median() { sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }
bits() { grep -oE '"(loss_bits|val_loss_bits|parameters_hash)":"[0-9a-f]+"' "$1"; }

# train <folder below runs/gpu_check> <ranks> <argument>...: trains a new run.
train() {
  local folder=$runs/$1 ranks=$2
  shift 2
  local command=("$bin/train_gpt")
  if ((ranks > 1)); then command=(start_ranks "$ranks" "${command[@]}"); fi
  if [[ ! $dry ]]; then
    rm -rf "$folder"
  elif [[ -x build/emulated/bin/train_gpt ]]; then
    build/emulated/bin/train_gpt "$@" --print-config >/dev/null
  fi
  run "${command[@]}" "$@" log.dir="$folder" --fresh snapshot.path=none
}

# same_bits <first run> <run>...: fails if a run has other bits than the first.
same_bits() {
  if [[ $dry ]]; then return; fi
  local first=$runs/$1/metrics.jsonl other
  for other in "${@:2}"; do
    if ! cmp <(bits "$first") <(bits "$runs/$other/metrics.jsonl"); then
      echo "the bits of $other differ from those of $1"
      return 1
    fi
  done
  echo "equal bits: $*"
}

part_build() {
  local architectures
  architectures=$(if [[ $dry ]]; then echo 90-real; else scripts/gpu_architectures.sh; fi)
  run cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="$architectures"
  run cmake --build --preset cuda --parallel "$(nproc)"
  run cmake --preset cuda -B build/exact -DCMAKE_CUDA_ARCHITECTURES="$architectures" -DLOCKSTEP_CUDA_EXACT=ON
  run cmake --build build/exact --target predicted_bits --parallel "$(nproc)"
}

# Prints a verdict for each kernel.
part_predicted() { run build/exact/bin/predicted_bits --compare src/kernels/cuda/predicted.csv; }

# Each program is one process with one GPU, because a process for each test would make hundreds of contexts. With several
# GPUs, ranks that are threads could block each other in NCCL while they record graphs.
part_tests() {
  local source failed=0
  for source in tests/*/cuda/*_test.cpp; do
    CUDA_VISIBLE_DEVICES=0 run "$bin/$(basename "$source" _test.cpp)_cuda_tests" --gtest_brief=1 || failed=1
  done
  run start_ranks 2 "$bin/mpi_gpu_ranks" || failed=1
  return "$failed"
}

# Trains small runs on several numbers of ranks, with and without graphs. Then it trains a model over shards, in each precision.
# Its messages are too large for NCCL's protocol LL, which takes messages below 16 KiB a channel. Without NCCL the same bits
# travel through the host.
part_bits() {
  local arguments=(--config shakespeare.ini data.dataset=sample train.device=cuda train.precision=bf16 train.steps=20
    train.warmup_steps=5 train.sample_every=0)
  train bits/1 1 "${arguments[@]}"
  train bits/1_again 1 "${arguments[@]}"
  train bits/1_without_graph 1 "${arguments[@]}" train.graph=false
  train bits/2 2 "${arguments[@]}"
  train bits/4 4 "${arguments[@]}"
  same_bits bits/1 bits/1_again bits/1_without_graph bits/2 bits/4
  local precision stage count=5
  arguments=(--config shakespeare.ini data.dataset=sample train.device=cuda train.steps=6 train.warmup_steps=2 train.sample_every=0
    model.n_embd=768 model.n_head=12 model.n_layer=2 dist.replicas=4 train.batch_size=2 train.eval_every=3)
  for precision in bf16 fp16 fp32; do
    train "bits/large_$precision" 1 "${arguments[@]}" train.precision="$precision"
    for stage in none optimizer gradients full; do
      train "bits/large_${precision}_$stage" 2 "${arguments[@]}" train.precision="$precision" dist.shard="$stage"
      same_bits "bits/large_$precision" "bits/large_${precision}_$stage"
      count=$((count + 1))
    done
  done
  append gpu_check "equal bits over ranks graphs shards and repeats" shakespeare.ini all "$count" runs
}

# Kills a rank of a run with recorded steps. lockrun restarts the run, which must end with the bits of an undisturbed one.
part_killed() {
  local arguments=(--config shakespeare.ini data.dataset=sample train.device=cuda train.precision=bf16 train.steps=400
    train.warmup_steps=5 train.sample_every=0 train.eval_every=0 dist.timeout_s=20 log.every_steps=50)
  train killed/undisturbed 2 "${arguments[@]}"
  local folder=$runs/killed/disturbed
  local command=("$bin/lockrun" --nproc 2 --max-restarts 1 -- "$bin/train_gpt" "${arguments[@]}" log.dir="$folder"
    snapshot.path="$folder/snapshots" snapshot.every_steps=50)
  if [[ $dry ]]; then
    echo "  ${command[*]} & kill -9 <a rank>"
    return
  fi
  rm -rf "$folder"
  "${command[@]}" &
  local job=$! victim
  while kill -0 "$job" 2>/dev/null && (($(lines "$folder/metrics.jsonl") < 100)); do sleep 0.05; done
  if ! victim=$(pgrep -f "^$bin/train_gpt .*$folder" | tail -n 1) || ! kill -9 "$victim"; then
    wait "$job" || true
    echo "the run ended before a rank could be killed, after $(lines "$folder/metrics.jsonl") lines"
    return 1
  fi
  echo "killed rank with process $victim after $(lines "$folder/metrics.jsonl") lines"
  wait "$job"
  same_bits killed/undisturbed killed/disturbed
}

# Runs the kernels' test programs under a sanitizer, one per core at a time. A program is stopped after half of the part's
# time and reported as cut off.
sanitize() {
  local tool=$1 limit=$2 source name status
  local names=() cut=0 failed=0
  for source in tests/kernels/cuda/*_test.cpp; do names+=("$(basename "$source" _test.cpp)"); done
  if [[ $dry ]]; then
    for name in "${names[@]}"; do run "$sanitizer" --tool "$tool" "$bin/${name}_cuda_tests"; done
    return
  fi
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
part_memcheck() { sanitize memcheck "$1"; }
part_racecheck() { sanitize racecheck "$1"; }
part_synccheck() { sanitize synccheck "$1"; }

# Trains 50 steps in bf16 on the GPU and in fp32 on the CPU. No loss may differ by more than 0.02.
part_curves() {
  local arguments=(--config quickstart.ini data.dataset=sample train.steps=50 train.warmup_steps=10 train.sample_every=0)
  train curves/cuda 1 "${arguments[@]}" train.device=cuda train.precision=bf16
  train curves/cpu 1 "${arguments[@]}" train.device=cpu
  if [[ $dry ]]; then return; fi
  local worst
  worst=$(paste <(values loss "$runs/curves/cuda/metrics.jsonl") <(values loss "$runs/curves/cpu/metrics.jsonl") |
    awk '{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > worst) worst = d } END { if (NR != 50) exit 1; print worst + 0 }')
  echo "largest difference of a loss over 50 steps: $worst"
  append gpu_check "largest difference from the CPU's fp32 loss" "quickstart.ini 50 steps" bf16 "$worst" nats
  awk -v worst="$worst" 'BEGIN { exit !(worst <= 0.02) }'
}

part_kernels() { run "$bin/bench_kernels" --device cuda --append --threads "$(nproc)"; }

part_allreduce() { run start_ranks 2 "$bin/bench_allreduce" --device cuda --append; }

part_pytorch() { run python3 bench/compare_pytorch.py --device cuda --program "$bin/train_gpt" --seconds "$1"; }

# Trains GPT-2 124M with the default plans of products and with tuned ones. Prints both, and the totals of docs/kernels/step.md.
part_gpt2() {
  local tuned metrics rate
  for tuned in false true; do
    train "gpt2_$tuned" 1 --config gpt2_124m.ini dist.replicas=1 train.batch_size=64 train.tune_matmul="$tuned" train.steps=40 \
      train.warmup_steps=10 train.eval_every=0
    metrics=$runs/gpt2_$tuned/metrics.jsonl
    rate=$(values tokens_per_s "$metrics" | tail -n +11 | median)
    append gpu_check "gpt2_124m.ini tokens per second, tune_matmul=$tuned" "1x64x1024 40 steps" bf16 "$rate" tokens/s
    if [[ ! $dry ]]; then
      echo "tune_matmul=$tuned: $rate tokens/s, a step of $(awk -v rate="$rate" 'BEGIN { print 65536e3 / rate }') ms"
    fi
  done
  sed -n '/^| part /p; /^| \*\*all/p' docs/kernels/step.md
}

part_shakespeare() {
  train shakespeare 1 --config shakespeare.ini train.precision=bf16 dist.replicas=1 train.batch_size=64 \
    train.tune_matmul=true train.sample_every=0
  if [[ $dry ]]; then return; fi
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
  if [[ $dry ]]; then return; fi
  case "$1" in
    *check) [[ -x $sanitizer ]] || echo "no compute-sanitizer" ;;
    allreduce | bits | killed) command -v mpirun >/dev/null || echo "no mpirun" ;;
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
if [[ $dry ]]; then
  for name in "${parts[@]}"; do
    if [[ -n $only && ,$only, != *,$name,* ]]; then continue; fi
    echo "=== $name, at most $((seconds * share[$name] / 100)) s"
    GPU_CHECK_DRY=yes GPU_CHECK_PART=$name GPU_CHECK_LIMIT=$seconds scripts/gpu_check.sh
  done
  exit
fi

# Each part runs in its own shell, so that its first failing command ends it and its time limit can stop all of it.
declare -A result
failed=0
echo "gpu_check: $gpus x $device, driver $driver, $seconds s"
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

# The report has everything that a reader without the machine needs.
{
  echo "# gpu_check: $(bench/commit.sh), $(date -u +%Y-%m-%dT%H:%MZ)"
  echo
  echo "$gpus x $device, driver $driver. $SECONDS of $seconds s. Figures are in $table."
  echo
  echo '| part | verdict |'
  echo '|---|---|'
  for name in "${parts[@]}"; do
    if [[ -n ${result[$name]:-} ]]; then echo "| $name | ${result[$name]} |"; fi
  done
  for name in "${parts[@]}"; do
    if [[ ! -e $logs/$name.log || -z ${result[$name]:-} ]]; then continue; fi
    printf '\n## %s\n\n```text\n' "$name"
    tail -n 60 "$logs/$name.log"
    echo '```'
  done
  printf '\n## machine\n\n```text\n'
  nvidia-smi || true
  nvidia-smi topo -m || true
  "$bin/train_gpt" --version || true
  nvcc --version || true
  echo '```'
} >"$report" 2>&1
sed '/^## /,$d' "$report"
echo "gpu_check: the whole report is $report"
exit "$failed"
