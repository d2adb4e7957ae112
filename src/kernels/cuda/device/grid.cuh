// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

namespace lockstep::cuda {

/// The shape of a launch. launch_grid itself requests shared memory beyond 48 KiB.
struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
};

/// Returns the number of blocks of `size` that cover `count` items.
inline unsigned blocks_for(int64_t count, int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace lockstep::cuda
