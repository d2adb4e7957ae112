// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/sum.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

Tensor sum_of(const Tensor& x) {
  const Tensor y = empty({}, x.dtype(), x.stream());
  launch(x.stream(), Sum{.x = x.view(), .y = y.view()});
  return y;
}

Tensor scaled(const Tensor& x, double factor) {
  const Tensor y = empty_like(x);
  launch(x.stream(), Scale{.x = x.view(), .y = y.view(), .factor = factor});
  return y;
}

int64_t count_kept(const Tensor& targets, int32_t ignore_index) {
  const int32_t* target = targets.data<int32_t>();
  return targets.size() - std::count(target, target + targets.size(), ignore_index);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int32_t ignore_index) {
  const Tensor losses = empty(targets.shape(), logits.dtype(), logits.stream());
  const double kept = static_cast<double>(count_kept(targets, ignore_index));
  const Tensor dlogits = is_recorded({logits}) ? empty_like(logits) : Tensor();
  launch(logits.stream(), CrossEntropy{.logits = logits.view(),
                                       .targets = targets.view(),
                                       .losses = losses.view(),
                                       .dlogits = dlogits.view(),
                                       .ignore_index = ignore_index,
                                       .gradient_scale = 1.0 / kept});
  return record("cross_entropy", scaled(sum_of(losses), 1.0 / kept), {logits},
                [dlogits](const Tensor& dy) -> Gradients {
                  const double factor = item(dy);
                  return {factor == 1.0 ? dlogits : scaled(dlogits, factor)};
                });
}

Tensor mean_squared_error(const Tensor& x, const Tensor& y) {
  const Tensor difference = subtract(x, y);
  return mean(multiply(difference, difference));
}

Tensor sum(const Tensor& x) {
  return record("sum", sum_of(x), {x}, [shape = x.shape()](const Tensor& dy) -> Gradients {
    return {full(shape, item(dy), dy.dtype())};
  });
}

Tensor mean(const Tensor& x) { return scale(sum(x), 1.0 / static_cast<double>(x.size())); }

}  // namespace lockstep
