// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/gradient_norm.h"

#include <array>
#include <utility>

#include "lockstep/kernels/sum.h"
#include "lockstep/tensor/create.h"

namespace lockstep {

void square_blocks(ParameterSpace& space, std::span<const Range> ranges, const Tensor& squares) {
  constexpr int64_t block = ParameterLayout::block;
  static_assert(block == sum_block, "a block of the norm is a block of the kernel");
  const FlatBuffer& gradients = space.gradients();
  BlockSquares kernel{.x = gradients.memory().view(), .y = squares.view(), .ranges = {}};
  int64_t written = 0;
  for (const Range& range : ranges) {
    expect(range.begin % block == 0 && range.end % block == 0, "elements [", range.begin, ", ", range.end,
           ") are not whole blocks");
    if (range.size() == 0) continue;
    const int64_t first = std::exchange(written, written + range.size() / block);
    kernel.ranges.push_back(
        {.first = first, .last = written, .shift = first - gradients.placement().offset_of(range) / block});
  }
  if (!kernel.ranges.empty()) launch(space.layout.stream(), kernel);
}

GradientNorm norm_of_blocks(const Tensor& squares, double max_norm, const Tensor& scale) {
  const GradientNorm result{.norm = empty({}, DType::f64, squares.stream()),
                            .factor = empty({}, DType::f32, squares.stream())};
  launch(squares.stream(), ClipFactor{.squares = squares.view(),
                                      .max_norm = max_norm,
                                      .norm = result.norm.view(),
                                      .factor = result.factor.view(),
                                      .scale = scale.view()});
  return result;
}

GradientNorm measure_gradient_norm(ParameterSpace& space, double max_norm, const Tensor& scale) {
  space.gradients.expect_present();
  if (!scale) space.gradients.expect_unscaled();
  const int64_t elements = space.layout.trainable_elements();
  const Tensor squares = empty({elements / ParameterLayout::block}, DType::f64, space.layout.stream());
  square_blocks(space, std::array{Range{0, elements}}, squares);
  return norm_of_blocks(squares, max_norm, scale);
}

double gradient_norm(ParameterSpace& space) { return item(measure_gradient_norm(space, 0.0).norm); }

}  // namespace lockstep
