// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "emulator/device/thread.h"

// Keywords and functions of CUDA C++ that nvcc implements, so that the toolkit's headers lack them.

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
// Kernels must use dynamic_shared() for shared memory, because the emulator checks only that.
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

/// Returns the address, which must be a multiple of T's alignment. Vector instructions require that.
template <class T>
T* aligned(T* address) {
  return static_cast<T*>(__builtin_assume_aligned(address, alignof(T)));
}

}  // namespace emulator

// Cache hints do not change values.
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
