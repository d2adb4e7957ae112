// SPDX-License-Identifier: Apache-2.0
#pragma once

// The arguments that attention.cu passes to the kernels of each tier.

#include <utility>

#include "lockstep/core/stream.h"
#include "lockstep/kernels/cuda/device/grid.cuh"
#include "lockstep/kernels/cuda/device/intrinsics.cuh"

namespace lockstep::cuda::attention {

/// The shared memory that a block can have on every target. The least is that of sm_86, sm_89 and sm_120.
inline constexpr size_t most_shared_bytes = size_t{99} * 1024;

/// The parameters of the draws of attention dropout. Without dropout only `kept` and `kept_scale` are read.
struct Dropout {
  uint64_t seed;
  uint32_t site;
  uint32_t sample;              ///< the first sample of the batch
  uint32_t step;                ///< used if device_step is null
  const uint32_t* device_step;  ///< in GPU memory
  uint32_t threshold;           ///< a weight is kept iff its 16 bits are at least this
  float kept;                   ///< 1 - probability
  float kept_scale;             ///< 1 / kept
};

/// Shapes and constants of one call.
struct Problem {
  int batch, time, heads, size;
  int key_heads, group;      ///< heads of keys and of values; heads of queries for each of them
  int columns, key_columns;  ///< heads * size, key_heads * size
  float scale;               ///< 1 / sqrt(size)
  bool dropped;
  Dropout dropout;
  int first_query = 0;  ///< the forward may skip earlier rows
};

/// The first rows of queries, keys and values or their gradients. Strides are in elements.
template <class T>
struct Operands {
  T *q, *k, *v;
  int query_stride;
  int key_stride;  ///< of keys and of values
};

template <class T>
struct Forward {
  Problem problem;
  Operands<const T> qkv;
  T* y;
  float* log_sum_exp;
};

template <class T>
struct Backward {
  Problem problem;
  Operands<const T> qkv;
  const T* y;
  const T* dy;
  const float* log_sum_exp;
  float* dots;  ///< [batch, heads, time], written first: dy . y, on tensor cores times dropout.kept
  Operands<T> dqkv;
  float* query_sums;  ///< [batch, blocks of queries, columns]: sums of dq's columns; null if not wanted
  float* key_sums;    ///< [batch, blocks of keys, 2 * key_columns]: of dk's and dv's; null if not wanted
};

/// Runs attention on tensor cores, on any GPU from sm_80 on. T is __nv_bfloat16 or __half. The size is a
/// multiple of 8 up to 128. All pointers and strides are multiples of 16 bytes.
template <class T>
void run_on_tensor_cores(const CudaStream& stream, const Forward<T>& call);
template <class T>
void run_on_tensor_cores(const CudaStream& stream, const Backward<T>& call);

/// Returns the rows of Backward::query_sums and Backward::key_sums on tensor cores.
std::pair<int64_t, int64_t> blocks_of_sums(const Problem& problem);

/// Runs attention in fp32 arithmetic. The size is at most 128.
void run_in_fp32(const CudaStream& stream, const Forward<float>& call);
void run_in_fp32(const CudaStream& stream, const Backward<float>& call);

/// Calls body.operator()<size, dropped>() with the smallest of 32, 64, 96 and 128 that holds a head.
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

/// Returns a grid with a block for every `rows` rows of each of `heads` heads of each sample: blockIdx.x, y
/// and z. It has no blocks whose rows are all before the first query.
inline dim3 blocks_of(const Problem& problem, int rows, int heads) {
  return {blocks_for(problem.time, rows) - problem.first_query / rows, static_cast<unsigned>(heads),
          static_cast<unsigned>(problem.batch)};
}

/// The rows of one head of one sample. Row i is at data + i * stride.
template <class T>
struct Rows {
  T* data;
  int stride;
  int count;
  int size;
};

/// Returns the rows of a head of this block's sample (blockIdx.z).
template <class T>
LOCKSTEP_DEVICE Rows<T> rows_of_head(T* data, int stride, const Problem& problem, int head) {
  const int64_t row = int64_t{blockIdx.z} * problem.time;
  return {data + row * stride + head * problem.size, stride, problem.time, problem.size};
}
template <class T>
LOCKSTEP_DEVICE Rows<T> query_rows_of(const Operands<T>& of, const Problem& problem, int head) {
  return rows_of_head(of.q, of.query_stride, problem, head);
}
template <class T>
LOCKSTEP_DEVICE Rows<T> key_rows_of(const Operands<T>& of, const Problem& problem, int head) {
  return rows_of_head(of.k, of.key_stride, problem, head);
}
template <class T>
LOCKSTEP_DEVICE Rows<T> value_rows_of(const Operands<T>& of, const Problem& problem, int head) {
  return rows_of_head(of.v, of.key_stride, problem, head);
}
/// Returns the rows of a head of y or dy.
template <class T>
LOCKSTEP_DEVICE Rows<T> output_rows_of(T* data, const Problem& problem, int head) {
  return rows_of_head(data, problem.columns, problem, head);
}

/// Returns this block's head (blockIdx.y).
LOCKSTEP_DEVICE int head_of_block() { return static_cast<int>(blockIdx.y); }

/// Returns where the statistics [batch, heads, time] of a query head of this block's sample begin.
LOCKSTEP_DEVICE int64_t statistics_of_head(const Problem& problem, int head) {
  return (int64_t{blockIdx.z} * problem.heads + head) * problem.time;
}

}  // namespace lockstep::cuda::attention
