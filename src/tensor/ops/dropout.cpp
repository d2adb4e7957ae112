// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.h"

#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

Tensor masked(const Tensor& x, double probability, const RandomKey& key) {
  const Tensor y = empty_like(x);
  launch(x.stream(), Dropout{.x = x.view(), .y = y.view(), .probability = probability, .key = key});
  return y;
}

}  // namespace

Tensor dropout(const Tensor& x, double probability, const RandomKey& key) {
  expect(probability >= 0.0 && probability < 1.0, "dropout: the probability must be in [0, 1), not ",
         probability);
  if (probability == 0.0) return x;
  // The mask is a function of the key. So the gradient draws it again instead of storing it.
  return record("dropout", masked(x, probability, key), {x},
                [probability, key](const Tensor& dy) -> Gradients { return {masked(dy, probability, key)}; });
}

}  // namespace lockstep
