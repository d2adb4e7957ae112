// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "emulator/device/thread.h"

// Words of CUDA C++ that the toolkit's headers leave to nvcc.

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__
#undef __constant__
#define __constant__
// Kernels take their shared memory from dynamic_shared(), where the emulator sees it.
#undef __shared__
#define __shared__ static_assert(false, "use dynamic_shared()");

#define threadIdx (::emulator::thread_index())
#define blockIdx (::emulator::block_index())
#define blockDim (::emulator::block_dimensions())
#define gridDim (::emulator::grid_dimensions())

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::block_barrier("__syncthreads", false, {file, line});
}
inline int __syncthreads_count(int predicate, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  return emulator::block_barrier("__syncthreads_count", predicate != 0, {file, line});
}
inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::block_barrier("__syncthreads_or", predicate != 0, {file, line}) > 0;
}
inline int __syncthreads_and(int predicate, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  return emulator::block_barrier("__syncthreads_and", predicate == 0, {file, line}) == 0;
}

namespace emulator {

/// An address that T's alignment divides: what the instructions for whole vectors demand.
template <class T>
T* aligned(T* address) {
  return static_cast<T*>(__builtin_assume_aligned(address, alignof(T)));
}

}  // namespace emulator

// Hints about caches change no value.
template <class T>
T __ldg(const T* from) {
  return *emulator::aligned(from);
}
template <class T>
T __ldcs(const T* from) {
  return *emulator::aligned(from);
}
template <class T>
void __stcs(T* to, T value) {
  *emulator::aligned(to) = value;
}
