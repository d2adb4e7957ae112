// SPDX-License-Identifier: Apache-2.0

// The largest or smallest values along a dimension. Rows of contiguous values belong to a warp each, or to a
// block of 512 threads from 1024 values on. Otherwise a thread compares one column in order, and a warp reads
// neighbouring columns. The first of equal values counts. Bytes: x once. In the backward a thread writes one
// element, and dx moves once. Bound: memory.

#include "lockstep/kernels/cuda/device/map.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"
#include "lockstep/kernels/extreme.h"

namespace lockstep {
namespace {

constexpr int column_threads = 128;
constexpr int row_threads = 512;
constexpr int least_long_row = 1024;
constexpr int short_rows_per_block = 8;

/// A value and its place. A place below 0: there is none yet.
template <class C>
struct Candidate {
  C value;
  int32_t place;
};

template <class T>
struct Problem {
  bool wants_largest;
  const T* x;
  T* y;             ///< may be null
  int32_t* places;  ///< may be null
  int64_t size;     ///< elements of y
  int64_t count, inner;
};

/// Returns whether a is more extreme than b, or equal and earlier.
template <class C>
LOCKSTEP_DEVICE bool is_before(bool wants_largest, const Candidate<C>& a, const Candidate<C>& b) {
  if (a.place < 0 || b.place < 0) return b.place < 0 && a.place >= 0;
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && a.value != b.value) return wants_largest ? a.value > b.value : a.value < b.value;
  return a.place < b.place;
}

template <class C>
LOCKSTEP_DEVICE Candidate<C> first_of_warp(bool wants_largest, Candidate<C> best) {
#pragma unroll
  for (int distance = cuda::warp_size / 2; distance > 0; distance /= 2) {
    const Candidate<C> other{__shfl_xor_sync(cuda::all_lanes, best.value, distance),
                             __shfl_xor_sync(cuda::all_lanes, best.place, distance)};
    if (is_before(wants_largest, other, best)) best = other;
  }
  return best;
}

template <class T>
LOCKSTEP_DEVICE void write(const Problem<T>& k, int64_t at, int32_t place, const T* first, int64_t stride) {
  if (k.y) k.y[at] = first[place * stride];
  if (k.places) k.places[at] = place;
}

/// Reduces a row with `threads` threads. A block of 32 threads a row has several rows.
template <int threads, class T>
__global__ void __launch_bounds__(threads == 32 ? 32 * short_rows_per_block : threads)
    row_kernel(Problem<T> k) {
  using C = decltype(cuda::widen(T{}));
  constexpr bool is_short = threads == 32;
  const int64_t row =
      is_short ? int64_t{blockIdx.x} * short_rows_per_block + cuda::warp_index() : int64_t{blockIdx.x};
  const int thread = static_cast<int>(threadIdx.x) % threads;
  Candidate<C> best{C(0), -1};
  const T* x = k.x + row * k.count;
  if (row < k.size)
    for (int64_t n = thread; n < k.count; n += threads) {
      const Candidate<C> next{cuda::widen(x[n]), static_cast<int32_t>(n)};
      if (is_before(k.wants_largest, next, best)) best = next;
    }
  best = first_of_warp(k.wants_largest, best);
  if constexpr (!is_short) {
    auto* of_warps = cuda::dynamic_shared<Candidate<C>>();
    if (cuda::lane_index() == 0) of_warps[cuda::warp_index()] = best;
    __syncthreads();
    for (int warp = 0; warp < threads / cuda::warp_size; ++warp)
      if (is_before(k.wants_largest, of_warps[warp], best)) best = of_warps[warp];
  }
  if (row < k.size && thread == 0) write(k, row, best.place, x, 1);
}

template <class T>
__global__ void __launch_bounds__(column_threads) column_kernel(Problem<T> k) {
  using C = decltype(cuda::widen(T{}));
  const int64_t index = int64_t{blockIdx.x} * column_threads + threadIdx.x;
  if (index >= k.size) return;
  const T* x = k.x + index / k.inner * k.count * k.inner + index % k.inner;
  Candidate<C> best{C(0), -1};
#pragma unroll 4
  for (int64_t n = 0; n < k.count; ++n) {
    const Candidate<C> next{cuda::widen(x[n * k.inner]), static_cast<int32_t>(n)};
    if (is_before(k.wants_largest, next, best)) best = next;
  }
  write(k, index, best.place, x, k.inner);
}

template <class Word>
__global__ void __launch_bounds__(column_threads)
    backward_kernel(const Word* dy, const int32_t* places, Word* dx, int64_t size, int64_t count,
                    int64_t inner) {
  const int64_t index = int64_t{blockIdx.x} * column_threads + threadIdx.x;
  if (index >= size) return;
  const int64_t row = index / inner;
  const int64_t at = row / count * inner + index % inner;
  dx[index] = places[at] == static_cast<int32_t>(row % count) ? dy[at] : Word(0);
}

template <class T>
void reduce(const CudaStream& stream, const DimensionExtreme& k) {
  const Problem<T> problem{.wants_largest = k.extreme == Extreme::largest,
                           .x = static_cast<const T*>(k.x.data),
                           .y = static_cast<T*>(k.y.data),
                           .places = static_cast<int32_t*>(k.places.data),
                           .size = k.outer() * k.inner,
                           .count = k.count,
                           .inner = k.inner};
  if (k.inner > 1)
    return cuda::launch_grid(
        stream, {.blocks = cuda::blocks_for(problem.size, column_threads), .threads = column_threads},
        column_kernel<T>, problem);
  if (k.count < least_long_row)
    return cuda::launch_grid(stream,
                             {.blocks = cuda::blocks_for(problem.size, short_rows_per_block),
                              .threads = 32 * short_rows_per_block},
                             row_kernel<32, T>, problem);
  cuda::launch_grid(stream,
                    {.blocks = static_cast<unsigned>(problem.size),
                     .threads = row_threads,
                     .shared_bytes = row_threads / cuda::warp_size * sizeof(Candidate<float>)},
                    row_kernel<row_threads, T>, problem);
}

template <class Word>
void spread(const CudaStream& stream, const ExtremeBackward& k) {
  cuda::launch_grid(
      stream, {.blocks = cuda::blocks_for(k.dx.size(), column_threads), .threads = column_threads},
      backward_kernel<Word>, static_cast<const Word*>(k.dy.data), static_cast<const int32_t*>(k.places.data),
      static_cast<Word*>(k.dx.data), k.dx.size(), k.count, k.inner);
}

}  // namespace

void run(CudaStream stream, const DimensionExtreme& k) {
  if (k.x.size() == 0) return;
  if (k.x.dtype == DType::i32) return reduce<int32_t>(stream, k);
  cuda::with_device_type(k.x.dtype, [&]<class T>() { reduce<T>(stream, k); });
}

void run(CudaStream stream, const ExtremeBackward& k) {
  if (k.dx.size() == 0) return;
  expect(k.dx.dtype != DType::f64, "f64 runs on the CPU only: f32, bf16 or f16 is needed on a GPU");
  bytes(k.dx.dtype) == 2 ? spread<uint16_t>(stream, k) : spread<uint32_t>(stream, k);
}

}  // namespace lockstep
