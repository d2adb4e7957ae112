// SPDX-License-Identifier: Apache-2.0
#pragma once

// The emulator's replacement of src/kernels/cuda/device/intrinsics.cuh.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "emulator/device/atomics.h"
#include "emulator/device/language.h"
#include "emulator/device/numbers.h"
#include "emulator/device/warp.h"

// The compiler turns copies of 16 bytes and more into calls that the race checker does not see. This file
// renames them.
asm(".set memcpy, __tsan_memcpy");
asm(".set memmove, __tsan_memmove");
asm(".set memset, __tsan_memset");

#define LOCKSTEP_DEVICE __device__ __forceinline__

namespace lockstep::cuda {

template <class T>
LOCKSTEP_DEVICE T* dynamic_shared() {
  return static_cast<T*>(emulator::shared_memory());
}

}  // namespace lockstep::cuda
