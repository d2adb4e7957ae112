// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/dropout.h"

#include <bit>
#include <cmath>

#include "lockstep/kernels/cpu/map.h"

namespace lockstep {
namespace {

/// Number of elements whose random words are made together, a multiple of the 8 of one draw.
constexpr int64_t block_elements = 512;

/// Draws the 16-bit words of elements [8 * first_group, 8 * first_group + block_elements) of one sample.
void draw_words(uint64_t key, uint64_t first_group, uint32_t sample, uint32_t step, uint16_t* words) {
  static_assert(std::endian::native == std::endian::little, "word 2 j is the low half of a 32-bit word");
  uint32_t draws[block_elements / 2];
  for (uint32_t i = 0; i < block_elements / 8; ++i) {
    const uint64_t group = first_group + i;
    const auto draw =
        philox<7>(key, {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), sample, step});
    for (int word = 0; word < 4; ++word) draws[4 * i + word] = draw[word];
  }
  std::memcpy(words, draws, sizeof draws);
}

}  // namespace

void run(CpuStream stream, const Dropout& k) {
  const uint64_t key = derive_key(k.key.seed, k.key.site, 0);
  const auto threshold = static_cast<int32_t>(std::lround(65536.0 * k.probability));
  const int64_t samples = k.x.shape[0];
  if (k.x.size() == 0) return;
  const int64_t elements = k.x.size() / samples;
  const int64_t blocks = (elements + block_elements - 1) / block_elements;
  const int64_t grain = elementwise_grain / std::min(elements, block_elements);
  with_float_type(k.x.dtype, [&]<class S>() {
    using T = Compute<S>;
    const T scale = static_cast<T>(1.0 / (1.0 - k.probability));
    const S* x = k.x.as<S>();
    S* y = k.y.as<S>();
    const auto drop = [=](T value, T word) {
      return word >= static_cast<T>(threshold) ? value * scale : T(0);
    };
    stream.for_each_chunk(samples * blocks, grain, [&](int64_t begin, int64_t end) {
      uint16_t words[block_elements];
      for (int64_t block = begin; block < end; ++block) {
        const int64_t sample = block / blocks;
        const int64_t first = block % blocks * block_elements;
        draw_words(key, static_cast<uint64_t>(first / 8), k.key.sample + static_cast<uint32_t>(sample),
                   k.key.step, words);
        const int64_t offset = sample * elements + first;
        map_range<T>(0, std::min(block_elements, elements - first), y + offset, drop, x + offset, words);
      }
    });
  });
}

}  // namespace lockstep
