#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares two witnesses of the CUDA kernels in every byte. The emulator (tests/emulator) runs the sources as C++ and records
# launches. The interpreter (tests/ptx) executes the PTX that nvcc makes of the same sources, on the recorded memory.
#   scripts/check_ptx.sh            one case per kernel, for sm_90a
#   scripts/check_ptx.sh --all      up to 100 cases per kernel, for sm_80 and sm_90a; then the planted bugs
#   scripts/check_ptx.sh --faults   only the planted bugs: each must be noticed
# It prints for the kernels of each template: their number, cases that are equal in bits, seconds, and passes over shared
# memory's banks and 32-byte sectors of device memory as multiples of the least possible. Needs nvcc, clang and Python, no GPU.
# It builds ptx_cases in build/emulated, and PTX in build/cuda_check, which scripts/check_kernels.sh uses too.
# Warps run in a random order. --seed N chooses another one than 1, and 0 runs them together. --log FILE writes the output to
# a file as well. JOBS=8 uses eight processes.
# Exit status: 0 all agree, 1 a kernel differs or has no case or a bug was not noticed, 2 the command line is wrong or nvcc is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=part
seed=1
log=
while (($# > 0)); do
  case "$1" in
    --all) mode=all ;;
    --faults) mode=faults ;;
    --seed)
      seed=${2:?check_ptx: --seed needs a number}
      shift
      ;;
    --log)
      log=${2:?check_ptx: --log needs a file}
      shift
      ;;
    *)
      echo "usage: scripts/check_ptx.sh [--all | --faults] [--seed N] [--log FILE]" >&2
      exit 2
      ;;
  esac
  shift
done
if ! command -v "${CUDACXX:-nvcc}" >/dev/null; then
  echo "check_ptx: nvcc was not found: install the CUDA toolkit and put its bin folder on PATH" >&2
  exit 2
fi
scripts/install_deps.sh --clang --cuda-checks
python=$PWD/.cache/cuda-venv/bin/python
export PYTHONDONTWRITEBYTECODE=1
jobs=${JOBS:-$(nproc)}
records=$PWD/build/emulated/ptx_records
compiled=$PWD/build/cuda_check
targets=(sm_90a)
if [[ $mode == all ]]; then targets=(sm_80 sm_90a); fi

# Makes what both witnesses need. check_kernels.sh configures the same folder with its own flags.
build() {
  cmake --preset emulated --log-level=WARNING
  cmake --build --preset emulated --target ptx_cases
  if [[ ! -e $compiled/CMakeCache.txt ]]; then
    cmake --preset cuda -B "$compiled" --log-level=WARNING -DCMAKE_BUILD_TYPE=None -DCMAKE_CUDA_ARCHITECTURES=90a-real
  fi
  cmake --build "$compiled" --parallel "$jobs" --target "${targets[@]/#/ptx_}"
}

# record <target>: records launches of a target: up to 3 per kernel, or 100 with --all and --faults.
record() {
  local capability=9.0 limit=3
  if [[ $1 == sm_80 ]]; then capability=8.0; fi
  if [[ $mode != part ]]; then limit=100; fi
  rm -rf "${records:?}/$1"
  LOCKSTEP_EMULATED_COMPUTE_CAPABILITY=$capability LOCKSTEP_EMULATOR_RECORD=$records/$1 \
    LOCKSTEP_EMULATOR_RECORD_LIMIT=$limit LOCKSTEP_MEMORY_POOL=off build/emulated/bin/ptx_cases
}

# ptx_of <target>: prints the folder of PTX files.
ptx_of() { find "$compiled/tests/ptx/CMakeFiles/ptx_$1.dir" -name attention.ptx -printf '%h\n'; }

# replay <target> [argument]...: replays launches.
replay() {
  echo "check_ptx: $1, warp order $seed"
  (cd tests && "$python" -m ptx --ptx "$(ptx_of "$1")" --records "$records/$1" --seed "$seed" --jobs "$jobs" "${@:2}")
}

plant() {
  rm -rf build/ptx_faults
  (cd tests && "$python" -m ptx.faults --build "$compiled" --records "$records/sm_90a" \
    --work ../build/ptx_faults)
}

# check is called as a condition, where set -e has no effect.
check() {
  local status=0 target
  for target in "${targets[@]}"; do
    record "$target" || return 1
    case $mode in
      part) replay "$target" --every-kernel || status=1 ;;
      all) replay "$target" --every-kernel --all || status=1 ;;
    esac
  done
  if [[ $mode != part ]]; then plant || status=1; fi
  return "$status"
}

build
SECONDS=0
status=0
(cd tests && "$python" -m unittest discover --quiet --top-level-directory . --start-directory ptx/tests)
if [[ -n $log ]]; then
  printf '# scripts/check_ptx.sh, mode %s, %s, commit %s\n\n' "$mode" "$(date -u +%F)" "$(git describe --always --dirty)" >"$log"
  check 2>&1 | tee --append "$log" || status=1
else
  check || status=1
fi
echo "check_ptx: $( ((status == 0)) && echo passed || echo FAILED) in $SECONDS s after the build"
exit "$status"
