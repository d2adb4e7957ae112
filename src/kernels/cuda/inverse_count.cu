// SPDX-License-Identifier: Apache-2.0

// 1 / the number of targets that count. One block has 1024 threads, each with up to eight accesses of 16
// bytes in flight. A round reads 128 KiB, so 65536 targets take two rounds. Bytes: the targets once.
// Bound: the latency of memory, a few microseconds per step.

#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"

namespace lockstep {
namespace {

constexpr int count_threads = 1024;

/// Counts in one block. The count is an integer, so its order does not matter.
template <int width, class Y>
__global__ void __launch_bounds__(count_threads)
    inverse_count_kernel(const int32_t* targets, int64_t size, int32_t ignore_index, Y* y) {
  int64_t kept = 0;
  const int64_t groups = size / width;
#pragma unroll 8
  for (int64_t group = threadIdx.x; group < groups; group += count_threads) {
    const auto values = cuda::load_group<width>(targets + group * width);
#pragma unroll
    for (int i = 0; i < width; ++i) kept += values.values[i] != ignore_index;
  }
  const int64_t rest = groups * width + threadIdx.x;
  if (rest < size) kept += targets[rest] != ignore_index;
  kept = cuda::block_sum<count_threads>(kept, cuda::dynamic_shared<int64_t>());
  if (threadIdx.x == 0) *y = static_cast<Y>(kept == 0 ? 0.0 : 1.0 / static_cast<double>(kept));
}

template <class Y>
void count(const CudaStream& stream, const InverseCount& k) {
  const auto* targets = k.targets.as<int32_t>();
  cuda::launch_grid(
      stream, {.blocks = 1, .threads = count_threads, .shared_bytes = count_threads / 32 * sizeof(int64_t)},
      cuda::is_aligned(targets) ? inverse_count_kernel<4, Y> : inverse_count_kernel<1, Y>, targets,
      k.targets.size(), k.ignore_index, k.y.as<Y>());
}

}  // namespace

void run(CudaStream stream, const InverseCount& k) {
  k.y.dtype == DType::f64 ? count<double>(stream, k) : count<float>(stream, k);
}

}  // namespace lockstep
