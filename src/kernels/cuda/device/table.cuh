// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/kernels/cuda/device/intrinsics.cuh"

namespace lockstep::cuda {

/// The bytes that the parameters of a kernel may have, from CUDA 12.1 on. A table of tensors fits, so one
/// launch serves all of them.
inline constexpr size_t parameter_bytes = 32764;

/// Returns the entry of a table that holds `tile`. The entries' field first_tile ascends from 0, and no entry
/// is empty.
template <class Entry>
LOCKSTEP_DEVICE int entry_of_tile(const Entry* entries, int count, uint32_t tile) {
  int low = 0;
  int high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (entries[middle].first_tile <= tile)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace lockstep::cuda
