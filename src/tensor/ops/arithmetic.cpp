// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "lockstep/kernels/sum.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/ops/broadcast.h"

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

OperandView view_of(const Operand& operand, DType dtype, const char* op) {
  if (!operand.is_number()) return operand.tensor().operand(dtype);
  constexpr double past_i32 = 0x1p31;
  const double number = operand.number();
  expect(dtype != DType::i32 || (number == std::trunc(number) && std::fabs(number) < past_i32), op,
         ": the tensor is i32, which cannot hold ", number);
  return {number, dtype};
}

Tensor add(const Operand& a, const Operand& b) {
  const OperationScope operation("add");
  return record(
      "add", combined<Add>(a, b), {a.tensor(), b.tensor()},
      [of_a = BroadcastInput(a), of_b = BroadcastInput(b)](const Tensor& dy) -> Gradients {
        return {of_a.gradient_if_wanted([&] { return dy; }), of_b.gradient_if_wanted([&] { return dy; })};
      });
}

Tensor subtract(const Operand& a, const Operand& b) {
  const OperationScope operation("subtract");
  return record("subtract", combined<Subtract>(a, b), {a.tensor(), b.tensor()},
                [of_a = BroadcastInput(a), of_b = BroadcastInput(b)](const Tensor& dy) -> Gradients {
                  return {of_a.gradient_if_wanted([&] { return dy; }),
                          of_b.is_wanted ? scale(of_b.gradient(dy), -1.0) : Tensor()};
                });
}

Tensor multiply(const Operand& a, const Operand& b) {
  const OperationScope operation("multiply");
  const BroadcastInput of_a(a), of_b(b);
  return record(
      "multiply", combined<Multiply>(a, b), {a.tensor(), b.tensor()},
      [a = kept(a, of_b.is_wanted), b = kept(b, of_a.is_wanted), of_a, of_b](const Tensor& dy) -> Gradients {
        return {of_a.gradient_if_wanted([&] { return combined<Multiply>(dy, b); }),
                of_b.gradient_if_wanted([&] { return combined<Multiply>(dy, a); })};
      });
}

Tensor divide(const Operand& a, const Operand& b) {
  const OperationScope operation("divide");
  const Tensor y = combined<Divide>(a, b);
  return record("divide", y, {a.tensor(), b.tensor()},
                [y = y.detach(), b = b.detach(), of_a = BroadcastInput(a),
                 of_b = BroadcastInput(b)](const Tensor& dy) -> Gradients {
                  const Tensor da = combined<Divide>(dy, b);
                  // d/db (a / b) = -(a / b) / b.
                  return {of_a.gradient_if_wanted([&] { return da; }),
                          of_b.is_wanted ? scale(of_b.gradient(combined<Multiply>(da, y)), -1.0) : Tensor()};
                });
}

}  // namespace lockstep
