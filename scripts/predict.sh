#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Predicts the bits of every kernel of the project's own, on the CPU. Builds the preset emulated, whose kernels are exact, and
# computes the cases of tests/kernels/predicted with the tensor cores of sm_80 and of sm_90. Writes the table
# src/kernels/cuda/predicted.csv: kernel, dtype, case, and the XXH3 of the results on each of them.
#   scripts/predict.sh            writes the table
#   scripts/predict.sh --check    compares with the table and prints a verdict for each kernel
# Exit status: 0 done, 1 bits differ from the table, 2 the command line is wrong.
# Needs the CUDA toolkit's headers and clang, but no GPU. docs/predicted_bits.md explains what is predicted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

check=no
if [[ ${1:-} == --check ]]; then
  check=yes
elif (($# > 0)); then
  echo "usage: scripts/predict.sh [--check]" >&2
  exit 2
fi

table=src/kernels/cuda/predicted.csv
program=build/emulated/bin/predicted_bits
cmake --preset emulated --log-level=WARNING
cmake --build --preset emulated --target predicted_bits
# Without the pool each access beyond an array's end is an error.
export LOCKSTEP_MEMORY_POOL=off

# on <compute capability> [argument]...: runs the program on emulated GPUs of that kind.
on() {
  LOCKSTEP_EMULATED_COMPUTE_CAPABILITY=$1 "$program" "${@:2}"
}

if [[ $check == yes ]]; then
  status=0
  on 8.0 --compare "$table" || status=1
  on 9.0 --compare "$table" || status=1
  exit "$status"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
on 8.0 >"$folder/80"
on 9.0 >"$folder/90"
{
  echo kernel,dtype,case,sm_80,sm_90
  paste -d , "$folder/80" <(sed 's/.*,//' "$folder/90")
} >"$folder/table"
mv "$folder/table" "$table"
chmod 644 "$table"
echo "predict: wrote $(($(wc -l <"$table") - 1)) cases to $table"
