// SPDX-License-Identifier: Apache-2.0
#pragma once

// For files that call CUDA. No public header includes this one.

#include <cuda_runtime_api.h>

#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"

namespace lockstep::cuda {

/// Throws Error with CUDA's message for the result. If the GPU is lost, calls lost_gpu (core/gpu.h) first.
[[noreturn]] void fail(cudaError_t result, const char* what, const char* file, int line);

/// Calls fail() unless the result is a success.
inline void check(cudaError_t result, const char* what, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (result != cudaSuccess) [[unlikely]]
    fail(result, what, file, line);
}

inline cudaStream_t native(const CudaStream& stream) { return static_cast<cudaStream_t>(stream.handle); }

/// Returns the number of streaming multiprocessors of the stream's GPU.
int multiprocessors(const CudaStream& stream);

}  // namespace lockstep::cuda
