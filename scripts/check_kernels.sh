#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every CUDA kernel with warnings as errors. Needs no GPU. Compares the resources that ptxas reports for each
# kernel with the table src/kernels/cuda/resources.csv. A new spill or stack frame fails. A kernel that is not in the
# table fails too. A necessary spill is allowed if its row has a reason in the last column.
#   scripts/check_kernels.sh                two targets; all six if sources of kernels changed since the last commit
#   scripts/check_kernels.sh --base main    two targets; all six if sources of kernels changed since main
#   scripts/check_kernels.sh --all          all six targets
#   scripts/check_kernels.sh --update       all six targets; writes the table and keeps its reasons
# It builds the preset cuda in build/cuda_check. Host code is not optimised, because it never runs. Each file is compiled
# separately, so a missing #include is an error. train_gpt can be linked there from the same objects:
#   cmake --build build/cuda_check --target train_gpt
# Two compilers run at the same time. JOBS=8 runs eight.
set -euo pipefail

# With --launch this is the build's compiler launcher. It writes the output of ptxas to a log next to the object file.
if [[ ${1:-} == --launch ]]; then
  shift
  object=
  for ((i = 1; i < $#; i++)); do
    if [[ ${!i} == -o ]]; then
      next=$((i + 1))
      object=${!next}
    fi
  done
  if [[ -z $object ]]; then exec "$@"; fi
  status=0
  "$@" >"$object.log" 2>&1 || status=$?
  if ((status != 0)); then grep -v '^ptxas info\|bytes stack frame' "$object.log" >&2 || true; fi
  exit "$status"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

table=src/kernels/cuda/resources.csv
header='file,kernel,target,registers,shared,stack,spill_stores,spill_loads,reason'
some_targets=(sm_80 sm_90a)
all_targets=(sm_80 sm_86 sm_89 sm_90a sm_100 sm_120)
folder=build/cuda_check

base=HEAD~1
all=no
update=no
while (($# > 0)); do
  case "$1" in
    --all) all=yes ;;
    --update) all=yes update=yes ;;
    --base)
      base=${2:?--base needs a commit}
      shift
      ;;
    *)
      echo "usage: scripts/check_kernels.sh [--all] [--update] [--base COMMIT]" >&2
      exit 2
      ;;
  esac
  shift
done

nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null; then
  echo "check_kernels: nvcc was not found: install the CUDA toolkit and put its bin folder on PATH" >&2
  exit 2
fi

# Kernel contracts and core/ are checked too, because kernels are templates over them.
sources_changed() {
  local paths=(src/kernels src/core ':!src/kernels/cpu' scripts/check_kernels.sh cmake/CompilerOptions.cmake)
  ! git rev-parse --quiet --verify "$base^{commit}" >/dev/null || ! git diff --quiet "$base" -- "${paths[@]}" ||
    [[ -n $(git ls-files --others --exclude-standard -- "${paths[@]}") ]]
}
targets=("${some_targets[@]}")
if [[ $all == yes ]] || sources_changed; then targets=("${all_targets[@]}"); fi

launcher="$PWD/scripts/check_kernels.sh;--launch"
if command -v ccache >/dev/null; then launcher+=";ccache"; fi
echo "check_kernels: src/kernels/cuda for ${targets[*]}"
SECONDS=0
architectures=$(printf '%s-real;' "${targets[@]#sm_}")
cmake --preset cuda -B "$folder" --log-level=WARNING -DCMAKE_CUDA_COMPILER="$nvcc" \
  -DCMAKE_CUDA_COMPILER_LAUNCHER="$launcher" -DCMAKE_CUDA_FLAGS=-Xptxas=-v \
  -DCMAKE_CUDA_ARCHITECTURES="${architectures%;}" -DCMAKE_BUILD_TYPE=None
cmake --build "$folder" --parallel "${JOBS:-2}" --target lockstep_kernels -- -k 0
compile_seconds=$SECONDS

mapfile -t files < <(find src/kernels/cuda -name '*.cu' | sort)
log_of() { echo "$folder/src/kernels/CMakeFiles/lockstep_kernels.dir/${1#src/kernels/}.o.log"; }
# These two ptxas warnings are errors: setmaxnreg is ignored, and wgmma is serialised.
failed=0
for file in "${files[@]}"; do
  if grep -H 'C7508\|C7510' "$(log_of "$file")" >&2; then failed=1; fi
done
if ((failed)); then exit 1; fi

# Writes one line per kernel and target. Namespaces and parameters are removed from names. The stack frames of functions
# that were not inlined are added to the kernel before them.
measured=$folder/measured.csv
for file in "${files[@]}"; do
  c++filt <"$(log_of "$file")" | awk -v file="${file#src/kernels/cuda/}" '
    function short(name, i, depth, letter) {
      gsub(/\(anonymous namespace\)::/, "", name)
      gsub(/[A-Za-z_][A-Za-z_0-9]*::/, "", name)
      for (i = 1; i <= length(name); i++) {
        letter = substr(name, i, 1)
        if (letter == "<") depth++
        if (letter == ">") depth--
        if (letter == "(" && depth == 0) break
      }
      name = substr(name, 1, i - 1)
      sub(/^[a-z]+ /, "", name)
      gsub(/__nv_bfloat16/, "bf16", name)
      gsub(/__half/, "f16", name)
      gsub(/float/, "f32", name)
      return name
    }
    /Compiling entry function/ {
      split($0, part, "\047")
      kernel = short(part[2])
      target = part[4]
      stack = stores = loads = 0
    }
    /bytes stack frame/ {
      stack += $1
      stores += $5
      loads += $9
    }
    /Used [0-9]+ registers/ {
      shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
      match($0, /Used [0-9]+/)
      registers = substr($0, RSTART + 5) + 0
      printf "%s,\"%s\",%s,%d,%d,%d,%d,%d,\n", file, kernel, target, registers, shared, stack, stores, loads
    }'
done | LC_ALL=C sort >"$measured"

# Reads the table, then the measured lines. figures[1] is the target, [2] registers, [3] shared memory, [4] to [6] stack
# and spills, [7] the reason. Writes the new table to stdout and messages to stderr.
status=0
awk -F'"' -v update="$update" -v targets="${targets[*]}" '
  function tell(text) { print text >"/dev/stderr" }
  FNR == 1 { input++ }
  input == 1 && FNR == 1 { next }
  {
    count = split(substr($3, 2), figures, ",")
    key = $1 "\"" $2 "\"," figures[1]
    name = $2 " (" substr($1, 1, length($1) - 1) ") for " figures[1]
  }
  input == 1 {
    known[key] = name
    target_of[key] = figures[1]
    registers[key] = figures[2]
    for (i = 4; i <= 6; i++) allowed[key, i] = figures[i]
    reason[key] = figures[7]
    next
  }
  {
    if (key in seen) {
      tell("two kernels have the name " name)
      failed = 1
    }
    seen[key] = 1
    print $0 reason[key]
    kernels++
    for (i = 4; i <= 6; i++)
      if (figures[i] > 0 && (reason[key] == "" || (update == "no" && figures[i] + 0 > allowed[key, i] + 0))) {
        tell(name ": stack frame " figures[4] ", spill stores " figures[5] ", spill loads " figures[6] " bytes")
        failed = 1
        break
      }
    if (update == "yes") next
    if (!(key in known)) {
      tell(name " is not in the table")
      failed = 1
    } else if (figures[2] != registers[key]) {
      tell(name ": " registers[key] " -> " figures[2] " registers")
      changed++
    }
  }
  END {
    for (key in known)
      if (!(key in seen) && index(" " targets " ", " " target_of[key] " ")) {
        if (update == "no") tell(known[key] " is in the table, but was not compiled")
        stale++
      }
    if (changed + stale > 0 || failed) tell("scripts/check_kernels.sh --update writes a new table")
    tell(kernels + 0 " kernels and targets, " changed + 0 " with different registers, " stale + 0 " removed")
    exit failed
  }' <(cat "$table" 2>/dev/null || echo "$header") "$measured" >"$folder/new.csv" || status=$?

if [[ $update == yes ]]; then
  { echo "$header" && cat "$folder/new.csv"; } >"$table"
  echo "check_kernels: wrote $table"
fi
verdict=$( ((status == 0)) && echo passed || echo FAILED)
echo "check_kernels: $verdict, compiled in $compile_seconds s with ${JOBS:-2} jobs"
exit "$status"
