// SPDX-License-Identifier: Apache-2.0

// Copies rows whose distance differs in both arrays. A thread moves one word: 16 bytes, or fewer if rows do
// not begin and end at multiples of 16. Neighbours in a row are neighbours in a warp. Bytes: every row twice.
// Bound: memory.

#include <bit>

#include "lockstep/kernels/copy_rows.h"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"

namespace lockstep {
namespace {

constexpr int threads = 256;

/// Lengths and strides count words.
template <class Word>
__global__ void __launch_bounds__(threads)
    copy_rows_kernel(const Word* x, Word* y, int64_t rows, int64_t length, int64_t x_stride,
                     int64_t y_stride) {
  const int64_t index = int64_t{blockIdx.x} * threads + threadIdx.x;
  const int64_t row = index / length, at = index % length;
  if (row < rows) y[row * y_stride + at] = x[row * x_stride + at];
}

template <class Word>
void copy(const CudaStream& stream, const CopyRows& k) {
  const auto words = [&](int64_t elements) {
    return elements * bytes(k.x.dtype) / static_cast<int64_t>(sizeof(Word));
  };
  cuda::launch_grid(stream,
                    {.blocks = cuda::blocks_for(k.rows * words(k.length), threads), .threads = threads},
                    copy_rows_kernel<Word>, static_cast<const Word*>(k.x.data), static_cast<Word*>(k.y.data),
                    k.rows, words(k.length), words(k.x_stride), words(k.y_stride));
}

}  // namespace

void run(CudaStream stream, const CopyRows& k) {
  if (k.length == 0 || k.rows == 0) return;
  // The lowest bit that is set in an address, a length or a stride limits the size of a word.
  const int64_t size = bytes(k.x.dtype);
  const auto steps = static_cast<uint64_t>((k.length | k.x_stride | k.y_stride) * size);
  const uint64_t all = steps | std::bit_cast<uint64_t>(k.x.data) | std::bit_cast<uint64_t>(k.y.data);
  if (all % 16 == 0) return copy<uint4>(stream, k);
  if (all % 8 == 0) return copy<uint2>(stream, k);
  all % 4 == 0 ? copy<uint32_t>(stream, k) : copy<uint16_t>(stream, k);
}

}  // namespace lockstep
