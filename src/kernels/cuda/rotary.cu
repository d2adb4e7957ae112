// SPDX-License-Identifier: Apache-2.0

// The table: a warp per token, a lane per frequency. An angle takes some 25 operations in double, which GPUs
// without fast doubles compute slowly. A table has no more elements than the queries of one head, and serves
// all layers. Bytes: the table, written once. Bound: doubles.
//
// The rotation: a thread takes 16 bytes of the left half of a head and the same place of the right half. It
// reads their cosines and sines in f32 from the caches, because all heads of a token share them. Heads whose
// half is not a multiple of 16 bytes are accessed element by element. Bytes: x and y, 2 arrays. Bound:
// memory.

#include <cmath>
#include <cstdint>

#include "lockstep/kernels/cuda/device/dtype.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"
#include "lockstep/kernels/math.h"
#include "lockstep/kernels/rotary.h"

namespace lockstep {
namespace {

using cuda::from_float, cuda::launch_grid, cuda::load_group, cuda::make_pack, cuda::Pack, cuda::to_float,
    cuda::warp_size;

constexpr int block_threads = 256;

__global__ void __launch_bounds__(block_threads)
    table_kernel(const float* frequencies, int half, const int32_t* positions, int64_t tokens, float* y) {
  const int64_t token = int64_t{blockIdx.x} * (block_threads / warp_size) + cuda::warp_index();
  if (token >= tokens) return;
  const auto position = static_cast<float>(positions ? int64_t{positions[token]} : token);
  float* cosines = y + token * 2 * half;
  for (int i = cuda::lane_index(); i < half; i += warp_size) {
    const float angle = position * frequencies[i];
    const auto [sine, cosine] = math::sine_and_cosine(static_cast<double>(angle));
    cosines[i] = static_cast<float>(cosine);
    cosines[half + i] = static_cast<float>(sine);
  }
}

template <class T>
struct Rotation {
  const T* x;
  const float* table;
  T* y;
  // Numbers of 32 bits, because divisions of 64 bits are slow.
  uint32_t threads;         ///< one for each piece of all left halves
  uint32_t pieces_per_row;  ///< in left halves
  uint32_t pieces_per_half;
  uint32_t tokens;
  float direction;
};

LOCKSTEP_DEVICE float rotated_left(float a, float b, float cosine, float sine) {
  return fmaf(a, cosine, -(b * sine));
}
LOCKSTEP_DEVICE float rotated_right(float a, float b, float cosine, float sine) {
  return fmaf(b, cosine, a * sine);
}

/// Rotates a piece of a head: 16 bytes of each half, or one element.
template <bool packed, class T>
__global__ void __launch_bounds__(block_threads) rotate_kernel(Rotation<T> k) {
  const uint32_t thread = blockIdx.x * block_threads + threadIdx.x;
  if (thread >= k.threads) return;
  constexpr int width = packed ? Pack<T>::size : 1;
  const uint32_t token = thread / k.pieces_per_row % k.tokens;
  const uint32_t piece = thread % k.pieces_per_half;
  const int64_t left = int64_t{2} * thread - piece, right = left + k.pieces_per_half;
  const float* cosines = k.table + (int64_t{2} * token * k.pieces_per_half + piece) * width;
  const float* sines = cosines + k.pieces_per_half * width;
  if constexpr (packed) {
    const auto* x = reinterpret_cast<const Pack<T>*>(k.x);
    auto* y = reinterpret_cast<Pack<T>*>(k.y);
    const Pack<T> a = x[left], b = x[right];
    const auto cosine = load_group<width>(cosines), sine = load_group<width>(sines);
    y[left] = make_pack<T>(
        [&](int i) { return rotated_left(a[i], b[i], cosine.values[i], k.direction * sine.values[i]); });
    y[right] = make_pack<T>(
        [&](int i) { return rotated_right(a[i], b[i], cosine.values[i], k.direction * sine.values[i]); });
  } else {
    const float a = to_float(k.x[left]), b = to_float(k.x[right]), sine = k.direction * *sines;
    k.y[left] = from_float<T>(rotated_left(a, b, *cosines, sine));
    k.y[right] = from_float<T>(rotated_right(a, b, *cosines, sine));
  }
}

template <bool packed, class T>
void rotate(const CudaStream& stream, const Rotate& k) {
  constexpr int width = packed ? Pack<T>::size : 1;
  const int64_t threads = k.x.size() / 2 / width;
  expect(threads <= INT32_MAX, "x ", k.x.shape, " is too large for a rotation on a GPU");
  const Rotation<T> arguments{.x = static_cast<const T*>(k.x.data),
                              .table = k.table.as<float>(),
                              .y = static_cast<T*>(k.y.data),
                              .threads = static_cast<uint32_t>(threads),
                              .pieces_per_row = static_cast<uint32_t>(k.x.shape[-1] / 2 / width),
                              .pieces_per_half = static_cast<uint32_t>(k.size() / 2 / width),
                              .tokens = static_cast<uint32_t>(k.table.shape[0]),
                              .direction = k.inverse ? -1.0f : 1.0f};
  launch_grid(stream, {.blocks = cuda::blocks_for(threads, block_threads), .threads = block_threads},
              rotate_kernel<packed, T>, arguments);
}

}  // namespace

void run(CudaStream stream, const RotaryTable& k) {
  expect(k.y.dtype == DType::f32, "rotary tables of ", k.y.dtype, " are for the CPU: a GPU needs f32");
  launch_grid(stream,
              {.blocks = cuda::blocks_for(k.tokens(), block_threads / warp_size), .threads = block_threads},
              table_kernel, k.frequencies.as<float>(), static_cast<int>(k.half()), k.positions.as<int32_t>(),
              k.tokens(), k.y.as<float>());
}

void run(CudaStream stream, const Rotate& k) {
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    const bool packed =
        k.size() / 2 % Pack<T>::size == 0 && cuda::is_aligned(k.x.data, k.table.data, k.y.data);
    packed ? rotate<true, T>(stream, k) : rotate<false, T>(stream, k);
  });
}

}  // namespace lockstep
