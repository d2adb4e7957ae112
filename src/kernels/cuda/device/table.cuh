// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/device/intrinsics.cuh"

namespace lockstep::cuda {

/// How many bytes the parameters of a kernel may have, from CUDA 12.1 on: room for a table of tensors, so
/// that one launch serves all of them.
inline constexpr size_t parameter_bytes = 32764;

/// The entry of a table that holds `tile`: entries have a field first_tile, ascending from 0, and none is
/// empty.
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
