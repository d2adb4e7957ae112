// SPDX-License-Identifier: Apache-2.0
#include "kernels/fold.h"

#include <array>

#include "kernels/cpu/map.h"

namespace lockstep {
namespace {

// Values of a fold live in blocks that stay in the first-level cache.
constexpr int64_t block_size = 1024;
using Block = std::array<float, block_size>;

/// Elements [begin, begin + count), count <= block_size. Sums lie where their place on the stack is.
void fold_block(const Fold& k, int64_t begin, int64_t count, std::vector<Block>& sums,
                std::vector<const float*>& stack) {
  size_t depth = 0;
  for (const int step : k.program) {
    if (step != Fold::add) {
      stack[depth++] = static_cast<const float*>(k.inputs[static_cast<size_t>(step)].data) + begin;
      continue;
    }
    --depth;
    const float* left = stack[depth - 1];
    const float* right = stack[depth];
    float* sum = sums[depth - 1].data();
    for (int64_t i = 0; i < count; ++i) sum[i] = left[i] + right[i];
    stack[depth - 1] = sum;
  }
  map_range<float>(
      0, count, static_cast<float*>(k.y.data) + begin, [scale = k.scale](float x) { return x * scale; },
      stack[0]);
}

}  // namespace

void run(CpuStream stream, const Fold& k) {
  const auto deepest = static_cast<size_t>(k.deepest());
  stream.for_each_chunk(k.y.size(), elementwise_grain, [&](int64_t begin, int64_t end) {
    std::vector<Block> sums(deepest);
    std::vector<const float*> stack(deepest);
    for (int64_t start = begin; start < end; start += block_size)
      fold_block(k, start, std::min(block_size, end - start), sums, stack);
  });
}

}  // namespace lockstep
