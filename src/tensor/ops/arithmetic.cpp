// SPDX-License-Identifier: Apache-2.0
#include "kernels/sum.h"
#include "tensor/ops.h"
#include "tensor/ops/broadcast.h"

namespace lockstep {

Tensor BroadcastInput::gradient(const Tensor& dy) const {
  const Shape& from = dy.shape();
  Tensor sum = dy;
  int64_t outer = 1;
  // Adjacent repeated dimensions are summed at once. A shape has at most two such groups.
  for (int i = 0; i < from.rank();) {
    const auto is_repeated = [&](int dimension) {
      const int own = dimension - from.rank() + shape.rank();
      return dimension < from.rank() && from[dimension] != (own < 0 ? 1 : shape[own]);
    };
    if (!is_repeated(i)) {
      outer *= from[i++];
      continue;
    }
    int64_t count = 1, inner = 1;
    while (is_repeated(i)) count *= from[i++];
    for (int j = i; j < from.rank(); ++j) inner *= from[j];
    const Tensor part = empty({outer, inner}, accumulator_dtype(dy.dtype()), dy.stream());
    launch(dy.stream(), DimensionSum{.x = sum.view(), .y = part.view(), .count = count, .inner = inner});
    sum = part;
  }
  if (sum.shape() != shape) sum = sum.reshape(shape);
  return convert(sum, dtype);
}

Tensor add(const Tensor& a, const Tensor& b) {
  return record(
      "add", combined<Add>(a, b), {a, b},
      [of_a = BroadcastInput(a), of_b = BroadcastInput(b)](const Tensor& dy) -> Gradients {
        return {of_a.is_wanted ? of_a.gradient(dy) : Tensor(), of_b.is_wanted ? of_b.gradient(dy) : Tensor()};
      });
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  return record("subtract", combined<Subtract>(a, b), {a, b},
                [of_a = BroadcastInput(a), of_b = BroadcastInput(b)](const Tensor& dy) -> Gradients {
                  return {of_a.is_wanted ? of_a.gradient(dy) : Tensor(),
                          of_b.is_wanted ? scale(of_b.gradient(dy), -1.0) : Tensor()};
                });
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  return record("multiply", combined<Multiply>(a, b), {a, b},
                [a = a.detach(), b = b.detach(), of_a = BroadcastInput(a),
                 of_b = BroadcastInput(b)](const Tensor& dy) -> Gradients {
                  return {of_a.is_wanted ? of_a.gradient(combined<Multiply>(dy, b)) : Tensor(),
                          of_b.is_wanted ? of_b.gradient(combined<Multiply>(dy, a)) : Tensor()};
                });
}

Tensor divide(const Tensor& a, const Tensor& b) {
  const Tensor y = combined<Divide>(a, b);
  return record("divide", y, {a, b},
                [y = y.detach(), b = b.detach(), of_a = BroadcastInput(a),
                 of_b = BroadcastInput(b)](const Tensor& dy) -> Gradients {
                  const Tensor da = combined<Divide>(dy, b);
                  // d/db (a / b) = -(a / b) / b.
                  return {of_a.is_wanted ? of_a.gradient(da) : Tensor(),
                          of_b.is_wanted ? scale(of_b.gradient(combined<Multiply>(da, y)), -1.0) : Tensor()};
                });
}

}  // namespace lockstep
