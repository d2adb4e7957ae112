// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.h"

#include "tensor/ops.h"

namespace lockstep {

Mlp::Mlp(const std::vector<int64_t>& widths) {
  expect(widths.size() >= 2, "an MLP needs at least the widths of its input and its output");
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    layers_.push_back(std::make_unique<Linear>(widths[i], widths[i + 1]));
    add_part(concat("layers.", i), *layers_.back());
  }
}

Tensor Mlp::operator()(const Tensor& x) const {
  Tensor y = x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (i > 0) y = relu(y);
    y = (*layers_[i])(y);
  }
  return y;
}

}  // namespace lockstep
