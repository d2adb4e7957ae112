#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Feeds random inputs to the readers of foreign bytes, one target after the other, and prints what each one did.
#   scripts/fuzz.sh [--seconds N | --runs N] [TARGET...]    the default is 60 seconds for every target of tests/fuzz
# New inputs and findings stay in build/fuzz/TARGET. A finding ends its target, and the exit code is 1 then. To repeat it:
#   build/asan/bin/fuzz_TARGET build/fuzz/TARGET/FILE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

limit=(-max_total_time=60)
targets=()
while (($# > 0)); do
  case "$1" in
    --seconds) limit=("-max_total_time=${2:?fuzz: --seconds needs a number}") && shift ;;
    --runs) limit=("-runs=${2:?fuzz: --runs needs a number}") && shift ;;
    -*)
      echo "usage: scripts/fuzz.sh [--seconds N | --runs N] [TARGET...]" >&2
      exit 2
      ;;
    *) targets+=("$1") ;;
  esac
  shift
done
if ((${#targets[@]} == 0)); then mapfile -t targets < <(ls tests/fuzz/corpus); fi
for target in "${targets[@]}"; do
  if [[ ! -f tests/fuzz/$target.cpp ]]; then
    echo "fuzz: there is no target $target; the targets are: $(ls tests/fuzz/corpus | tr '\n' ' ')" >&2
    exit 2
  fi
done

scripts/install_deps.sh --fuzz
cmake --preset asan --log-level=WARNING
cmake --build --preset fuzz

export UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tests/support/lsan.suppressions:print_suppressions=0
findings=0
printf '%-16s %12s %12s %9s\n' target executions "a second" findings
for target in "${targets[@]}"; do
  folder=build/fuzz/$target
  log=$folder.log
  mkdir -p "$folder/inputs"
  found=0
  build/asan/bin/fuzz_"$target" "${limit[@]}" -timeout=20 -rss_limit_mb=2560 -malloc_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix="$folder/" "$folder/inputs" "tests/fuzz/corpus/$target" >"$log" 2>&1 || found=1
  stat() { sed -n "s/^stat::$1: *//p" "$log"; }
  printf '%-16s %12s %12s %9d\n' "$target" "$(stat number_of_executed_units)" "$(stat average_exec_per_sec)" "$found"
  if ((found)); then
    grep -a -m 3 -E 'CHECK FAILED|ERROR: |runtime error|what\(\)|Test unit written' "$log" || tail -n 5 "$log"
    echo "more: $log"
    findings=$((findings + 1))
  fi
done
((findings == 0))
