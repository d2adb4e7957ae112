// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "lockstep/core/cuda_check.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/cuda/device/grid.cuh"

namespace lockstep::cuda {

/// Enqueues kernel(arguments...) on the stream. Does nothing for a grid without blocks. Throws Error that
/// names the request which the device refused.
template <class... Parameters, class... Arguments>
void launch_grid(const CudaStream& stream, const Grid& grid, void (*kernel)(Parameters...),
                 Arguments&&... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  constexpr size_t default_limit = 48 * 1024;
  if (grid.shared_bytes > default_limit)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared_bytes)),
          "asking for the shared memory of a kernel");
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = native(stream);
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
        "launching a kernel");
}

}  // namespace lockstep::cuda
