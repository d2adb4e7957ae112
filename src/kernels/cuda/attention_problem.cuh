// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the entry points of attention.cu hand to the kernels of each tier.

#include "core/stream.h"
#include "kernels/cuda/device/grid.cuh"
#include "kernels/cuda/device/intrinsics.cuh"

namespace lockstep::cuda::attention {

/// What a block may have on every target: sm_86, sm_89 and sm_120 have the least.
inline constexpr size_t most_shared_bytes = size_t{99} * 1024;

/// The draws of attention dropout, as kernels see them. Without dropout only `kept_scale` is read.
struct Dropout {
  uint64_t seed;
  uint32_t site;
  uint32_t sample;              ///< of the first sample of the batch
  uint32_t step;                ///< where device_step is null
  const uint32_t* device_step;  ///< in GPU memory
  uint32_t threshold;           ///< a weight is kept iff its 16 bits are not below
  float kept_scale;             ///< 1 / (1 - probability)
};

/// Shapes and constants of one call.
struct Problem {
  int batch, time, heads, size;
  int columns;  ///< heads * size
  float scale;  ///< 1 / sqrt(size)
  bool dropped;
  Dropout dropout;
  int first_query = 0;  ///< the forward may leave out the rows before
};

template <class T>
struct Forward {
  Problem problem;
  const T* qkv;
  T* y;
  float* log_sum_exp;
};

template <class T>
struct Backward {
  Problem problem;
  const T* qkv;
  const T* dy;
  const float* log_sum_exp;
  const float* dots;  ///< [batch, heads, time]: dy . y
  T* dqkv;
};

/// Any GPU from sm_80 on, T __nv_bfloat16 or __half: tensor cores. The size is a multiple of 8 up to 128, the
/// pointers are multiples of 16 bytes.
template <class T>
void run_on_tensor_cores(const CudaStream& stream, const Forward<T>& call);
template <class T>
void run_on_tensor_cores(const CudaStream& stream, const Backward<T>& call);

/// fp32 arithmetic throughout; sizes up to 128.
void run_in_fp32(const CudaStream& stream, const Forward<float>& call);
void run_in_fp32(const CudaStream& stream, const Backward<float>& call);

/// Calls body.operator()<size, dropped>() with the smallest of 32, 64, 96 and 128 that holds the size of a
/// head.
template <class Body>
void with_variant(const Problem& problem, Body&& body) {
  const auto with_size = [&]<int size>() {
    if (problem.dropped) return body.template operator()<size, true>();
    body.template operator()<size, false>();
  };
  if (problem.size <= 32) return with_size.template operator()<32>();
  if (problem.size <= 64) return with_size.template operator()<64>();
  if (problem.size <= 96) return with_size.template operator()<96>();
  with_size.template operator()<128>();
}

/// A block for every `rows` rows of each head of each sample, but none where all lie before the first query:
/// blockIdx.x, y and z.
inline dim3 blocks_of(const Problem& problem, int rows) {
  return {blocks_for(problem.time, rows) - problem.first_query / rows, static_cast<unsigned>(problem.heads),
          static_cast<unsigned>(problem.batch)};
}

/// The rows of one head of one sample inside a packed array: row i at data + i * stride.
template <class T>
struct Rows {
  T* data;
  int stride;
  int count;
  int size;
};

/// Rows of this block's head (blockIdx.y) and sample (blockIdx.z), in part `part` of `parts` of the columns.
template <int parts, class T>
LOCKSTEP_DEVICE Rows<T> rows_of_block(T* data, const Problem& problem, int part) {
  const int stride = parts * problem.columns;
  const int column = part * problem.columns + static_cast<int>(blockIdx.y) * problem.size;
  const int64_t row = int64_t{blockIdx.z} * problem.time;
  return {data + row * stride + column, stride, problem.time, problem.size};
}

/// Where the statistics [batch, heads, time] of this block's rows begin.
LOCKSTEP_DEVICE int64_t statistics_of_block(const Problem& problem) {
  return (int64_t{blockIdx.z} * problem.heads + blockIdx.y) * problem.time;
}

}  // namespace lockstep::cuda::attention
