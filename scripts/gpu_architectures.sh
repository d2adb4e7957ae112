#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the value of CMAKE_CUDA_ARCHITECTURES for the GPUs of this machine, for example 90a-real or 80-real;90a-real.
#   cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="$(scripts/gpu_architectures.sh)"
# It asks nvidia-smi and needs no CUDA toolkit. CMAKE_CUDA_ARCHITECTURES=native calls it (cmake/CudaToolkit.cmake). GPUs older
# than compute capability 8.0 are left out with a message. Exit status 1: no GPU is left.
set -euo pipefail

if ! command -v nvidia-smi >/dev/null; then
  echo "gpu_architectures: nvidia-smi was not found: install NVIDIA's driver, or name the architectures" >&2
  exit 1
fi
capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>&1) || {
  echo "gpu_architectures: nvidia-smi lists no GPU: ${capabilities:-it prints nothing}" >&2
  exit 1
}
architectures=()
while read -r capability; do
  if [[ ! $capability =~ ^([0-9]+)\.([0-9]+)$ ]]; then
    echo "gpu_architectures: nvidia-smi prints '$capability' and no compute capability: update the driver" >&2
    exit 1
  elif ((BASH_REMATCH[1] < 8)); then
    echo "gpu_architectures: a GPU of compute capability $capability is left out: 8.0 is the least" >&2
  elif [[ $capability == 9.0 ]]; then
    architectures+=(90a-real)
  else
    architectures+=("${BASH_REMATCH[1]}${BASH_REMATCH[2]}-real")
  fi
done < <(sort --version-sort --unique <<<"$capabilities")
if ((${#architectures[@]} == 0)); then
  echo "gpu_architectures: no GPU can run the kernels" >&2
  exit 1
fi
(IFS=';' && echo "${architectures[*]}")
