// SPDX-License-Identifier: Apache-2.0
#include "nn/layers.h"

#include "tensor/ops.h"

namespace lockstep {

Linear::Linear(int64_t inputs, int64_t outputs, bool has_bias, DType dtype, WeightOrder order)
    : order_(order),
      weight_(add_parameter(
          "weight", order == WeightOrder::out_in ? Shape{outputs, inputs} : Shape{inputs, outputs}, dtype)) {
  if (has_bias) bias_ = add_parameter("bias", {outputs}, dtype);
}

Tensor Linear::operator()(const Tensor& x, const Tensor& residual) const {
  return linear(x, weight_, bias_, residual, order_);
}

LayerNorm::LayerNorm(int64_t columns, bool has_bias, DType dtype)
    : weight_(add_parameter("weight", {columns}, dtype, constant_values(1.0))) {
  if (has_bias) bias_ = add_parameter("bias", {columns}, dtype);
}

Tensor LayerNorm::operator()(const Tensor& x) const { return layer_norm(x, weight_, bias_); }

SumAndNorm LayerNorm::add(const Tensor& x, const Tensor& branch) const {
  return add_layer_norm(x, branch, weight_, bias_);
}

Mlp::Mlp(const std::vector<int64_t>& widths) {
  expect(widths.size() >= 2, "an MLP needs at least the widths of its input and its output");
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    layers_.push_back(std::make_unique<Linear>(widths[i], widths[i + 1]));
    add_part(concat("layers.", i), *layers_.back());
  }
}

Tensor Mlp::operator()(const Tensor& x) const {
  const Tensor& weight = layers_.front()->weight();
  Tensor y = x.dtype() == weight.dtype() ? convert(x, weight.compute_dtype()) : x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (i > 0) y = relu(y);
    y = (*layers_[i])(y);
  }
  return convert(y, x.dtype());
}

}  // namespace lockstep
