// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/comparison.h"

#include <cmath>

#include "lockstep/tensor/ops/broadcast.h"

namespace lockstep {
namespace {

Tensor compared(const char* op, Comparison comparison, const Operand& a, const Operand& b) {
  const OperationScope operation(op);
  return combined<Compare>(a, b, {.comparison = comparison, .a = {}, .b = {}, .y = {}}, op);
}

/// Returns where() off the tape.
Tensor selected(const Operand& mask, const Operand& a, const Operand& b) {
  const DType dtype = common_dtype({&a, &b, &mask}, "where");
  const Stream& stream = mask.tensor().stream();
  const Shape shape = broadcast(mask.shape(), broadcast(a.shape(), b.shape(), "where"), "where");
  const Tensor y = empty(shape, dtype, stream);
  launch(stream, Where{.mask = mask.tensor().operand(dtype),
                       .a = view_of(a, dtype, "where"),
                       .b = view_of(b, dtype, "where"),
                       .y = y.view()});
  return y;
}

/// Returns the gradient of an operand of maximum() or minimum(). `is_beaten` is 1 where the other operand is
/// taken. Where both are equal each gets half of dy. Where one is NaN each gets all of it, as in PyTorch.
Tensor share_of(const Tensor& dy, const Tensor& is_beaten, const Tensor& is_equal) {
  return selected(is_beaten, 0.0, selected(is_equal, scale(dy, 0.5), dy));
}

/// Records maximum() or minimum().
template <class K>
Tensor extreme_of(const Operand& a, const Operand& b, bool wants_largest) {
  const BroadcastInput of_a(a), of_b(b);
  return record(K::name, combined<K>(a, b), {a.tensor(), b.tensor()},
                [a = a.detach(), b = b.detach(), of_a, of_b, wants_largest](const Tensor& dy) -> Gradients {
                  const NoGrad no_grad;
                  const auto gradient = [&](const Operand& own, const Operand& other) {
                    return share_of(dy, wants_largest ? less(own, other) : greater(own, other), equal(a, b));
                  };
                  return {of_a.gradient_if_wanted([&] { return gradient(a, b); }),
                          of_b.gradient_if_wanted([&] { return gradient(b, a); })};
                });
}

}  // namespace

Tensor less(const Operand& a, const Operand& b) { return compared("less", Comparison::less, a, b); }
Tensor less_equal(const Operand& a, const Operand& b) {
  return compared("less_equal", Comparison::less_equal, a, b);
}
Tensor greater(const Operand& a, const Operand& b) { return compared("greater", Comparison::less, b, a); }
Tensor greater_equal(const Operand& a, const Operand& b) {
  return compared("greater_equal", Comparison::less_equal, b, a);
}
Tensor equal(const Operand& a, const Operand& b) { return compared("equal", Comparison::equal, a, b); }
Tensor not_equal(const Operand& a, const Operand& b) {
  return compared("not_equal", Comparison::not_equal, a, b);
}

Tensor where(const Tensor& mask, const Operand& a, const Operand& b) {
  const OperationScope operation("where");
  const Tensor& model = (a.is_number() ? b : a).tensor();
  const DType dtype = model ? model.compute_dtype() : mask.dtype();
  expect(dtype != DType::i32 || mask.dtype() == dtype, "the mask is ", mask.dtype(),
         " and selects among i32: compare i32 tensors to make it");
  // A small number must not become 0 in another dtype.
  const Tensor own_mask = mask.dtype() == dtype ? mask.detach() : convert(not_equal(mask, 0.0), dtype);
  return record(
      "where", selected(own_mask, a, b), {a.tensor(), b.tensor()},
      [mask = own_mask, of_a = BroadcastInput(a), of_b = BroadcastInput(b)](const Tensor& dy) -> Gradients {
        return {of_a.gradient_if_wanted([&] { return selected(mask, dy, 0.0); }),
                of_b.gradient_if_wanted([&] { return selected(mask, 0.0, dy); })};
      });
}

Tensor maximum(const Operand& a, const Operand& b) {
  const OperationScope operation("maximum");
  return extreme_of<Maximum>(a, b, true);
}

Tensor minimum(const Operand& a, const Operand& b) {
  const OperationScope operation("minimum");
  return extreme_of<Minimum>(a, b, false);
}

Tensor clamp(const Tensor& given, double low, double high) {
  const OperationScope operation("clamp");
  expect(!std::isnan(low) && !std::isnan(high), "the bounds are ", low, " and ", high);
  const Tensor x = computed(given);
  Tensor y = x.detach();
  if (low > -INFINITY) y = combined<Maximum>(y, low);
  if (high < INFINITY) y = combined<Minimum>(y, high);
  return record("clamp", y, {x}, [x = x.detach(), low, high](const Tensor& dy) -> Gradients {
    const NoGrad no_grad;
    Tensor dx = dy;
    if (low > -INFINITY) dx = selected(greater(x, low), dx, 0.0);
    if (high < INFINITY) dx = selected(less(x, high), dx, 0.0);
    return {dx};
  });
}

}  // namespace lockstep
