// SPDX-License-Identifier: Apache-2.0

// Dropout by logical coordinates. A thread handles the elements of one 16-byte access of one sample: 8 of 16
// bits, or 4 of f32. It draws the random words of their group of 8 itself. blockIdx.x goes over a sample, and
// blockIdx.y over samples. Bytes: x once and y once. The mask is never stored. Seven rounds of Philox are
// some 60 instructions for 8 (f32: 4) elements. An H200 has time for 28 (f32: 56) instructions per element
// while its memory is busy. Bound: memory. If a sample's size is not a multiple of an access, its elements
// are accessed one by one.

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/dropout.h"

namespace lockstep {
namespace {

using cuda::from_float, cuda::load_pack, cuda::Pack, cuda::store_pack, cuda::to_float;

constexpr int threads_per_block = 256;
constexpr int64_t most_blocks_y = 65535;

struct Mask {
  uint64_t key;
  const uint32_t* device_step;  ///< if null, `step` is used
  uint32_t step;
  uint32_t first_sample;
  uint32_t threshold;
  float scale;
};

/// Draws the 16-bit words of elements [first, first + width) of a sample. A 32-bit word serves two elements,
/// the first one with its low half.
template <int width>
LOCKSTEP_DEVICE void draw_words(const Mask& mask, uint32_t step, int64_t first, uint32_t sample,
                                uint32_t (&words)[width]) {
  static_assert(width == 8 || width == 4);
  const auto group = static_cast<uint64_t>(first) / 8;
  const auto draw =
      philox<7>(mask.key, {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), sample, step});
#pragma unroll
  for (int pair = 0; pair < width / 2; ++pair) {
    const bool second_half = width == 4 && first % 8 != 0;
    const uint32_t word = second_half ? draw[(pair + 2) % 4] : draw[pair];
    words[2 * pair] = word & 0xffffu;
    words[2 * pair + 1] = word >> 16;
  }
}

LOCKSTEP_DEVICE float drop(const Mask& mask, uint32_t word, float x) {
  return word >= mask.threshold ? x * mask.scale : 0.0f;
}

template <class T, bool packed>
__global__ void __launch_bounds__(threads_per_block)
    dropout_kernel(int64_t samples, int64_t elements, const T* x, T* y, Mask mask) {
  constexpr int width = Pack<T>::size;
  const int64_t first = (int64_t{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first >= elements) return;
  const uint32_t step = mask.device_step ? *mask.device_step : mask.step;
  for (int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    const int64_t offset = sample * elements + first;
    Pack<T> pack;
    if constexpr (packed) pack = load_pack(x + offset);
    uint32_t words[width];
    draw_words(mask, step, first, mask.first_sample + static_cast<uint32_t>(sample), words);
    if constexpr (packed) {
      store_pack(y + offset, cuda::make_pack<T>([&](int i) { return drop(mask, words[i], pack[i]); }));
    } else {
#pragma unroll
      for (int i = 0; i < width; ++i)
        if (first + i < elements)
          y[offset + i] = from_float<T>(drop(mask, words[i], to_float(x[offset + i])));
    }
  }
}

}  // namespace

void run(CudaStream stream, const Dropout& k) {
  if (k.x.size() == 0) return;
  const int64_t samples = k.x.shape[0];
  const int64_t elements = k.x.size() / samples;
  const Mask mask{.key = derive_key(k.key.seed, k.key.site, 0),
                  .device_step = k.key.device_step,
                  .step = k.key.step,
                  .first_sample = k.key.sample,
                  .threshold = static_cast<uint32_t>(std::lround(65536.0 * k.probability)),
                  .scale = static_cast<float>(1.0 / (1.0 - k.probability))};
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    constexpr int width = cuda::Pack<T>::size;
    const cuda::Grid grid{.blocks = dim3(cuda::blocks_for(elements, int64_t{threads_per_block} * width),
                                         static_cast<unsigned>(std::min(samples, most_blocks_y))),
                          .threads = threads_per_block};
    const auto* x = static_cast<const T*>(k.x.data);
    auto* y = static_cast<T*>(k.y.data);
    const bool packed = elements % width == 0 && cuda::is_aligned(x, y);
    cuda::launch_grid(stream, grid, packed ? dropout_kernel<T, true> : dropout_kernel<T, false>, samples,
                      elements, x, y, mask);
  });
}

}  // namespace lockstep
