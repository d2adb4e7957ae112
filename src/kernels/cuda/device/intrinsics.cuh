// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the language gives to a kernel. The emulator puts a file of this name in front of this one, as it does
// with launch.cuh and ptx.cuh; everything else below kernels/cuda is the same source on a GPU and on the
// host.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define LOCKSTEP_DEVICE __device__ __forceinline__

namespace lockstep::cuda {

/// The block's shared memory, aligned to 1024 bytes: as many bytes as the launch asked for. The only shared
/// memory that kernels use, so that the emulator can poison and watch all of it.
template <class T>
LOCKSTEP_DEVICE T* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char lockstep_dynamic_shared[];
  return reinterpret_cast<T*>(lockstep_dynamic_shared);
}

}  // namespace lockstep::cuda
