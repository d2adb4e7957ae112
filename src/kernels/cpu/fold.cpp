// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/fold.h"

#include <array>

#include "lockstep/kernels/cpu/map.h"

namespace lockstep {
namespace {

/// Number of elements in a piece. It is so small that all inputs arrive side by side, as one stream each.
constexpr int64_t piece = 64;
using Piece = std::array<float, piece>;

/// Folds elements [begin, begin + count). A sum is stored at its position on the stack.
[[gnu::always_inline]] inline void fold_piece(const Fold& k, int64_t begin, int64_t count,
                                              std::vector<Piece>& sums, std::vector<const float*>& stack) {
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
  float* y = static_cast<float*>(k.y.data) + begin;
  const float* sum = stack[0];
  const float scale = k.scale;
  for (int64_t i = 0; i < count; ++i) y[i] = sum[i] * scale;
}

}  // namespace

void run(CpuStream stream, const Fold& k) {
  const auto deepest = static_cast<size_t>(k.deepest());
  stream.for_each_chunk(k.y.size(), elementwise_grain, [&](int64_t begin, int64_t end) {
    std::vector<Piece> sums(deepest);
    std::vector<const float*> stack(deepest);
    for_each_piece<piece>(
        end - begin, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
          fold_piece(k, begin + first, count, sums, stack);
        });
  });
}

}  // namespace lockstep
