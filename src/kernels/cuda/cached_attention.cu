// SPDX-License-Identifier: Apache-2.0

// Attention of new tokens in texts whose keys and values are cached. First a thread per element stores keys
// and values in the cache. Then a block handles a token and a head. A thread per key computes scores in
// shared memory, and the block their maximum and sum. A thread per element of the value then adds over the
// keys in order. Bytes: for each token, the keys and values of its text once. Bound: memory for long texts,
// otherwise the launches.

#include <cmath>

#include "lockstep/kernels/cached_attention.h"
#include "lockstep/kernels/cuda/device/dtype.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"

namespace lockstep {
namespace {

constexpr int threads = 128;
constexpr int panel = static_cast<int>(CachedAttention::panel);

template <class T>
struct Problem {
  const T *queries, *new_keys, *new_values;
  T *keys, *values, *y;
  const int32_t* places;
  int64_t tokens;
  int64_t query_stride, key_stride;  ///< of the rows of queries, and of new keys and values
  int heads, key_heads, group;       ///< group: heads of queries for each of keys
  int size, padded_size, capacity;

  /// Returns the number of keys before those of a key head of the token's text.
  LOCKSTEP_DEVICE int64_t plane(int64_t token, int key_head) const {
    return (int64_t{places[2 * token]} * key_heads + key_head) * capacity;
  }
  LOCKSTEP_DEVICE int64_t key(int position, int d) const {
    return (int64_t{position / panel} * size + d) * panel + position % panel;
  }
};

template <class T>
__global__ void __launch_bounds__(threads) put_kernel(Problem<T> k) {
  const int64_t item = int64_t{blockIdx.x} * threads + threadIdx.x;
  const int width = k.key_heads * k.size;
  if (item >= k.tokens * width) return;
  const int64_t token = item / width;
  const int column = static_cast<int>(item % width);
  const int head = column / k.size, d = column % k.size, position = k.places[2 * token + 1];
  const int64_t plane = k.plane(token, head), at = token * k.key_stride + column;
  k.keys[plane * k.size + k.key(position, d)] = k.new_keys[at];
  k.values[plane * k.padded_size + int64_t{position} * k.padded_size + d] = k.new_values[at];
}

template <class T>
__global__ void __launch_bounds__(threads) attend_kernel(Problem<T> k, float scale) {
  float* weights = cuda::dynamic_shared<float>();
  float* query = weights + k.capacity;
  float* partial = query + k.size;
  const int64_t token = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  const int count = k.places[2 * token + 1] + 1, width = k.heads * k.size;
  const int64_t plane = k.plane(token, head / k.group);
  const T* keys = k.keys + plane * k.size;
  const T* values = k.values + plane * k.padded_size;
  for (int d = thread; d < k.size; d += threads)
    query[d] = cuda::to_float(k.queries[token * k.query_stride + head * k.size + d]);
  __syncthreads();
  float largest = -INFINITY;
  for (int position = thread; position < count; position += threads) {
    float score = 0.0f;
    for (int d = 0; d < k.size; ++d) score = fmaf(query[d], cuda::to_float(keys[k.key(position, d)]), score);
    weights[position] = score * scale;
    largest = fmaxf(largest, score * scale);
  }
  largest = cuda::warp_max(largest);
  if (cuda::lane_index() == 0) partial[cuda::warp_index()] = largest;
  __syncthreads();
  for (int warp = 0; warp < threads / cuda::warp_size; ++warp) largest = fmaxf(largest, partial[warp]);
  __syncthreads();
  float sum = 0.0f;
  for (int position = thread; position < count; position += threads) {
    weights[position] = cuda::fast_exp(weights[position] - largest);
    sum += weights[position];
  }
  sum = cuda::block_sum<threads>(sum, partial);
  for (int d = thread; d < k.size; d += threads) {
    float output = 0.0f;
    for (int position = 0; position < count; ++position)
      output = fmaf(weights[position], cuda::to_float(values[int64_t{position} * k.padded_size + d]), output);
    k.y[token * width + head * k.size + d] = cuda::from_float<T>(output / sum);
  }
}

}  // namespace

void run(CudaStream stream, const CachedAttention& k) {
  if (k.y.size() == 0) return;
  cuda::with_device_type(k.y.dtype, [&]<class T>() {
    const Problem<T> problem{.queries = static_cast<const T*>(k.qkv.q.data),
                             .new_keys = static_cast<const T*>(k.qkv.k.data),
                             .new_values = static_cast<const T*>(k.qkv.v.data),
                             .keys = static_cast<T*>(k.keys.data),
                             .values = static_cast<T*>(k.values.data),
                             .y = static_cast<T*>(k.y.data),
                             .places = static_cast<const int32_t*>(k.places.data),
                             .tokens = k.tokens(),
                             .query_stride = k.qkv.q.stride,
                             .key_stride = k.qkv.k.stride,
                             .heads = static_cast<int>(k.heads.queries),
                             .key_heads = static_cast<int>(k.heads.keys),
                             .group = static_cast<int>(k.heads.group()),
                             .size = static_cast<int>(k.size()),
                             .padded_size = static_cast<int>(k.values.shape[3]),
                             .capacity = static_cast<int>(k.capacity())};
    const int64_t elements = k.tokens() * k.heads.keys * k.size();
    cuda::launch_grid(stream,
                      {.blocks = cuda::blocks_for(elements, threads), .threads = threads, .shared_bytes = 0},
                      put_kernel<T>, problem);
    const auto floats = static_cast<size_t>(k.capacity() + k.size() + threads / cuda::warp_size);
    cuda::launch_grid(
        stream,
        {.blocks = dim3(static_cast<unsigned>(k.tokens()), static_cast<unsigned>(k.heads.queries)),
         .threads = threads,
         .shared_bytes = floats * sizeof(float)},
        attend_kernel<T>, problem, 1.0f / std::sqrt(static_cast<float>(k.size())));
  });
}

}  // namespace lockstep
