#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every CUDA kernel with warnings as errors, without a GPU, and compares what ptxas says of each with the table
# src/kernels/cuda/resources.csv. A new spill or stack frame fails, and so does a kernel that the table does not know;
# a spill that has to be is allowed where its row gives a reason in the last column.
#   scripts/check_kernels.sh                two targets; all six if sources of kernels changed since the last commit
#   scripts/check_kernels.sh --base main    ... if they changed since main
#   scripts/check_kernels.sh --all          all six
#   scripts/check_kernels.sh --update       all six, and writes the table; reasons stay
# Objects and logs land in build/check_kernels. Two compilers at a time; JOBS=8 for more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

table=src/kernels/cuda/resources.csv
header='file,kernel,target,registers,shared,stack,spill_stores,spill_loads,reason'
some_targets=(sm_80 sm_90a)
all_targets=(sm_80 sm_86 sm_89 sm_90a sm_100 sm_120)
folder=build/check_kernels

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
  echo "check_kernels: there is no nvcc: install the CUDA toolkit and put its bin folder on PATH" >&2
  exit 2
fi

# Contracts and core/ count as well: kernels are templates over them.
sources_changed() {
  local paths=(src/kernels src/core ':!src/kernels/cpu' scripts/check_kernels.sh cmake/CompilerOptions.cmake)
  ! git rev-parse --quiet --verify "$base^{commit}" >/dev/null || ! git diff --quiet "$base" -- "${paths[@]}" ||
    [[ -n $(git ls-files --others --exclude-standard -- "${paths[@]}") ]]
}
targets=("${some_targets[@]}")
if [[ $all == yes ]] || sources_changed; then targets=("${all_targets[@]}"); fi

# As cmake/CompilerOptions.cmake has it.
command=("$nvcc" -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr --extended-lambda -DLOCKSTEP_CUDA -Isrc
  "-Xcompiler=-Wall,-Wextra" -Werror=all-warnings -Xptxas=-v)
for target in "${targets[@]}"; do command+=("-gencode=arch=compute_${target#sm_},code=$target"); done
if command -v ccache >/dev/null; then command=(ccache "${command[@]}"); fi

# The largest files first, so that the last compiler does not run alone for long.
mapfile -t files < <(find src/kernels/cuda -name '*.cu' -printf '%s %p\n' | sort -rn | cut -d' ' -f2)
mkdir -p "$folder"
find "$folder" -type f -delete
echo "check_kernels: ${#files[@]} files for ${targets[*]}"
SECONDS=0
# $0 is the folder, the last argument the file. A log that is left without its object tells of a failure.
# shellcheck disable=SC2016
printf '%s\0' "${files[@]}" | xargs --null --max-args=1 --max-procs="${JOBS:-2}" \
  bash -c 'name=$(basename "${!#}" .cu); "$@" -c -o "$0/$name.o" >"$0/$name.log" 2>&1 || true' \
  "$folder" "${command[@]}"
compile_seconds=$SECONDS

failed=0
for file in "${files[@]}"; do
  name=$(basename "$file" .cu)
  if [[ ! -e $folder/$name.o ]]; then
    echo "$file does not compile:" >&2
    grep -v '^ptxas info\|bytes stack frame' "$folder/$name.log" >&2 || true
    failed=1
  # ptxas: setmaxnreg ignored; wgmma serialised.
  elif grep -H 'C7508\|C7510' "$folder/$name.log" >&2; then
    failed=1
  fi
done
if ((failed)); then exit 1; fi

# One line a kernel and target. Names lose namespaces and parameters; the frames of functions that were not inlined
# count for the kernel above them.
measured=$folder/measured.csv
for file in "${files[@]}"; do
  c++filt <"$folder/$(basename "$file" .cu).log" | awk -v file="${file#src/kernels/cuda/}" '
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

# Reads the table, then what was measured; figures[1] is the target, [2] registers, [3] shared memory, [4] to [6] stack
# and spills, [7] the reason. Writes the new table, and what is to be told to stderr.
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
      tell("two kernels are called " name)
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
        if (update == "no") tell(known[key] " is in the table only")
        stale++
      }
    if (changed + stale > 0 || failed) tell("scripts/check_kernels.sh --update writes the table anew")
    tell(kernels + 0 " kernels and targets, " changed + 0 " with other registers, " stale + 0 " gone")
    exit failed
  }' <(cat "$table" 2>/dev/null || echo "$header") "$measured" >"$folder/new.csv" || status=$?

if [[ $update == yes ]]; then
  { echo "$header" && cat "$folder/new.csv"; } >"$table"
  echo "check_kernels: wrote $table"
fi
verdict=$( ((status == 0)) && echo passed || echo FAILED)
echo "check_kernels: $verdict, compiled in $compile_seconds s with ${JOBS:-2} jobs"
exit "$status"
