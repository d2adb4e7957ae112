// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/matmul.h"
#include "lockstep/kernels/sum.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/operation_observer.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

Tensor sum_of(const Tensor& x) {
  const Tensor y = empty({}, x.dtype(), x.stream());
  launch(x.stream(), Sum{.x = x.view(), .y = y.view()});
  return y;
}

/// Multiplies x in place by the gradient that reached a scalar operation. No other code uses x. The host
/// knows the factor if the backward starts at this operation. It is often 1.
Tensor times_gradient(const Tensor& x, const Tensor& dy, const GradientContext& context) {
  const std::optional<double> seed = context.starting_gradient();
  if (!seed)
    launch(x.stream(),
           ScaleBy{.x = x.view(), .factor = convert(dy, accumulator_dtype(x.dtype())).view(), .y = x.view()});
  else if (*seed != 1.0)
    launch(x.stream(), Scale{.x = x.view(), .y = x.view(), .factor = *seed});
  return x;
}

/// Returns `given`, or if that is empty 1 / the number of targets that count. It is on the device of the
/// targets.
Tensor inverse_of(const Tensor& given, const Tensor& targets, int32_t ignore_index, DType dtype) {
  if (given) {
    expect(given.shape() == Shape{} && given.dtype() == dtype, "inverse_count is ", given.shape(), " ",
           given.dtype(), ", not one ", dtype);
    return given.detach();
  }
  const Tensor inverse = empty({}, dtype, targets.stream());
  launch(targets.stream(),
         InverseCount{.targets = targets.view(), .ignore_index = ignore_index, .y = inverse.view()});
  return inverse;
}

/// Returns the loss: the sum of the rows' losses, times `inverse`.
Tensor mean_of(const Tensor& losses, const Tensor& inverse) {
  observe_result(losses_of_rows, losses);
  return multiply(sum_of(losses), inverse);
}

/// Returns the factor of the rows' gradients before they are rounded: `inverse`, times the loss scale if
/// there is one.
Tensor gradient_scale(const Tensor& inverse, const Tensor& loss_scale) {
  return loss_scale ? multiply(inverse, loss_scale) : inverse;
}

/// Returns the loss marked with the loss scale that its gradient contains.
Tensor told(const Tensor& loss, const Tensor& loss_scale) {
  if (loss_scale) set_loss_scale(loss, loss_scale);
  return loss;
}

/// The matmul that computes logits and their loss.
struct Head {
  Tensor x;        ///< [rows, columns]
  Tensor weight;   ///< [classes, columns]
  Tensor targets;  ///< [rows]
  Tensor losses;   ///< [rows]
  int32_t ignore_index;
  Tensor bias = {};            ///< [classes], a constant
  Tensor inverse = {};         ///< factor of the sum of losses: 1 / the number of rows that count
  Tensor gradient_scale = {};  ///< `inverse`, times the loss scale if there is one

  /// Computes the losses of rows [begin, end) and returns their logits. The gradient overwrites the logits if
  /// it is wanted.
  Tensor logits(int64_t begin, int64_t end, bool wants_gradient) const {
    const Tensor result = [&] {
      const MemoryScope scope("logits");
      return empty({end - begin, weight.shape()[0]}, x.dtype(), x.stream());
    }();
    launch(x.stream(), MatMul{.a = x.slice(begin, end).view(),
                              .b = weight.operand(x.dtype()),
                              .bias = bias.view(),
                              .c = result.view(),
                              .transpose_b = true});
    launch(x.stream(), CrossEntropy{.logits = result.view(),
                                    .targets = targets.slice(begin, end).view(),
                                    .losses = losses.slice(begin, end).view(),
                                    .dlogits = wants_gradient ? result.view() : View{},
                                    .scale = gradient_scale.view(),
                                    .ignore_index = ignore_index});
    return result;
  }

  /// Computes dx and dweight from `dlogits`, the gradient of the logits' rows that start at `begin`.
  /// Multiplies the results by `factor`. Writes the same rows of dx. Adds the rows' term to dweight.before
  /// and writes the sum to dweight.memory. Skips a gradient that has no memory.
  void gradients(const Tensor& dlogits, int64_t begin, const Tensor& dx, const GradientTarget& dweight,
                 double factor = 1.0) const {
    const int64_t end = begin + dlogits.shape()[0];
    if (dx)
      launch(x.stream(), MatMul{.a = dlogits.view(),
                                .b = weight.operand(x.dtype()),
                                .c = dx.slice(begin, end).view(),
                                .scale = factor});
    if (!dweight.memory) return;
    launch(x.stream(), MatMul{.a = dlogits.view(),
                              .b = x.slice(begin, end).view(),
                              .c = dweight.memory.view(),
                              .residual = dweight.before.view(),
                              .transpose_a = true,
                              .scale = factor});
  }
};

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int32_t ignore_index,
                     const Tensor& loss_scale, const Tensor& inverse_count) {
  const OperationScope operation("cross_entropy");
  const Tensor losses = empty(targets.shape(), accumulator_dtype(logits.dtype()), logits.stream());
  const Tensor inverse = inverse_of(inverse_count, targets, ignore_index, losses.dtype());
  const Tensor dlogits = is_recorded({logits}) ? empty_like(logits) : Tensor();
  launch(logits.stream(), CrossEntropy{.logits = logits.view(),
                                       .targets = targets.view(),
                                       .losses = losses.view(),
                                       .dlogits = dlogits.view(),
                                       .scale = gradient_scale(inverse, loss_scale).view(),
                                       .ignore_index = ignore_index});
  return told(record("cross_entropy", mean_of(losses, inverse), {logits},
                     [dlogits](const Tensor& dy, GradientContext& context) -> Gradients {
                       return {times_gradient(dlogits, dy, context)};
                     }),
              loss_scale);
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            int64_t rows_at_once, int32_t ignore_index, const Tensor& loss_scale,
                            const Tensor& bias, const Tensor& inverse_count) {
  const OperationScope operation("linear_cross_entropy");
  const int64_t rows = x.shape().rows();
  expect(weight.shape().rank() == 2 && x.shape()[-1] == weight.shape()[1] && targets.size() == rows,
         "linear_cross_entropy: x is ", x.shape(), ", weight is ", weight.shape(), ", targets are ",
         targets.shape());
  Head head{.x = x.detach().reshape({rows, x.shape()[-1]}),
            .weight = weight.detach(),
            .targets = targets.detach().reshape({rows}),
            .losses = empty({rows}, accumulator_dtype(x.dtype()), x.stream()),
            .ignore_index = ignore_index,
            .bias = bias};
  head.inverse = inverse_of(inverse_count, targets, ignore_index, head.losses.dtype());
  head.gradient_scale = gradient_scale(head.inverse, loss_scale);
  const bool recorded = is_recorded({x, weight});
  if (rows_at_once <= 0 || rows_at_once >= rows) {
    const Tensor dlogits = head.logits(0, rows, recorded);
    return told(
        record("linear_cross_entropy", mean_of(head.losses, head.inverse), {x, weight},
               [head, dlogits, shape = x.shape()](const Tensor& dy, GradientContext& context) -> Gradients {
                 const Tensor dx = context.wants(0) ? empty_like(head.x) : Tensor();
                 const GradientTarget dweight =
                     context.wants(1) ? context.gradient_target(1, head.weight) : GradientTarget();
                 // The matmuls apply the factor if the host knows it.
                 const std::optional<double> seed = context.starting_gradient();
                 if (!seed) times_gradient(dlogits, dy, context);
                 head.gradients(dlogits, 0, dx, dweight, seed.value_or(1.0));
                 return {dx ? dx.reshape(shape) : Tensor(), dweight.memory};
               }),
        loss_scale);
  }
  const Tensor dx = recorded && x.requires_grad() ? empty_like(head.x) : Tensor(),
               dweight = recorded && weight.requires_grad() ? empty_like(weight) : Tensor();
  for (int64_t begin = 0; begin < rows; begin += rows_at_once) {
    const Tensor dlogits = head.logits(begin, std::min(rows, begin + rows_at_once), recorded);
    if (recorded) head.gradients(dlogits, begin, dx, {dweight, begin == 0 ? Tensor() : dweight});
  }
  return told(
      record("linear_cross_entropy", mean_of(head.losses, head.inverse), {x, weight},
             [dx, dweight, shape = x.shape()](const Tensor& dy, GradientContext& context) -> Gradients {
               return {dx ? times_gradient(dx, dy, context).reshape(shape) : Tensor(),
                       dweight ? times_gradient(dweight, dy, context) : Tensor()};
             }),
      loss_scale);
}

Tensor linear_cross_entropies(const Tensor& x, const Tensor& weight, const Tensor& targets,
                              int64_t rows_at_once, int32_t ignore_index, const Tensor& bias) {
  const OperationScope operation("linear_cross_entropies");
  const int64_t rows = x.shape().rows();
  const Head head{.x = x.detach().reshape({rows, x.shape()[-1]}),
                  .weight = weight.detach(),
                  .targets = targets.detach().reshape({rows}),
                  .losses = empty({rows}, accumulator_dtype(x.dtype()), x.stream()),
                  .ignore_index = ignore_index,
                  .bias = bias};
  const int64_t step = rows_at_once > 0 ? rows_at_once : std::max<int64_t>(rows, 1);
  for (int64_t begin = 0; begin < rows; begin += step)
    head.logits(begin, std::min(rows, begin + step), false);
  return head.losses.reshape(targets.shape());
}

Tensor mean_squared_error(const Tensor& x, const Tensor& y) {
  const OperationScope operation("mean_squared_error");
  // Nothing is broadcast here: a column next to a row is a mistake.
  expect(x.shape() == y.shape(), "mean_squared_error: x is ", x.shape(), ", y is ", y.shape(),
         "; equal shapes are needed");
  const Tensor difference = subtract(x, y);
  return mean(multiply(difference, difference));
}

Tensor sum(const Tensor& x) {
  const OperationScope operation("sum");
  return record("sum", sum_of(x), {x},
                [shape = x.shape()](const Tensor& dy, GradientContext& context) -> Gradients {
                  return {times_gradient(full(shape, 1.0, dy.dtype(), dy.stream()), dy, context)};
                });
}

Tensor mean(const Tensor& x) {
  const OperationScope operation("mean");
  return scale(sum(x), 1.0 / static_cast<double>(x.size()));
}

}  // namespace lockstep
