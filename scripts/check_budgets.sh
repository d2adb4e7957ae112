#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts the instructions of the hot loops of CUDA kernels, by disassembling what scripts/check_kernels.sh compiled. Needs no
# GPU. Compares the figures with the table src/kernels/cuda/budgets.csv, for the targets that were compiled. A figure that is
# more than 3 % worse fails. docs/kernels/budgets.md explains the figures.
#   scripts/check_kernels.sh [--all] && scripts/check_budgets.sh    compares
#   scripts/check_kernels.sh --all && scripts/check_budgets.sh --update    writes the table
# Exit status: 0 done, 1 a figure is worse or could not be counted, 2 the command line is wrong or nvcc is missing.
# The table holds for one release of nvcc. With another one nothing is compared, and the exit status is 0.
# JOBS=8 uses eight processors instead of two.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

update=()
if [[ ${1:-} == --update ]]; then
  update=(--update)
elif (($# > 0)); then
  echo "usage: scripts/check_budgets.sh [--update]" >&2
  exit 2
fi

counted_release=13.0
nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null; then
  echo "check_budgets: nvcc was not found: install the CUDA toolkit and put its bin folder on PATH" >&2
  exit 2
fi
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
if [[ $release != "$counted_release" ]]; then
  echo "check_budgets: skipped, because the table is for nvcc $counted_release and this is $release"
  exit 0
fi

scripts/install_deps.sh --cuda-checks
SECONDS=0
PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover --quiet --start-directory tests/budgets --pattern '*_test.py'
nvdisasm=$(echo .cache/cuda-venv/lib/python3*/site-packages/nvidia/cu13/bin/nvdisasm)
status=0
PYTHONDONTWRITEBYTECODE=1 python3 tests/budgets/budgets.py --build build/cuda_check --nvdisasm "$nvdisasm" \
  --table src/kernels/cuda/budgets.csv --jobs "${JOBS:-2}" "${update[@]}" || status=$?
verdict=$( ((status == 0)) && echo passed || echo FAILED)
echo "check_budgets: $verdict in $SECONDS s with ${JOBS:-2} jobs"
exit "$status"
