// SPDX-License-Identifier: Apache-2.0
#pragma once

// Language features that kernels use. The emulator replaces this file, launch.cuh and ptx.cuh by files of the
// same names. All other source below kernels/cuda is the same on a GPU and on the host.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define LOCKSTEP_DEVICE __device__ __forceinline__

namespace lockstep::cuda {

/// Returns the block's shared memory, aligned to 1024 bytes. Its size is what the launch requested. Kernels
/// use no other shared memory, so the emulator can poison and watch all of it.
template <class T>
LOCKSTEP_DEVICE T* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char lockstep_dynamic_shared[];
  return reinterpret_cast<T*>(lockstep_dynamic_shared);
}

}  // namespace lockstep::cuda
