// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/layers.h"

#include <utility>

#include "lockstep/tensor/checkpoint.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

Linear::Linear(int64_t inputs, int64_t outputs, bool has_bias, DType dtype, WeightOrder order)
    : order_(order),
      weight_(add_parameter("weight",
                            order == WeightOrder::out_in ? Shape{outputs, inputs} : Shape{inputs, outputs},
                            linear_values(inputs), dtype)) {
  if (has_bias) bias_ = add_parameter("bias", {outputs}, linear_values(inputs), dtype);
}

LayerNorm::LayerNorm(int64_t columns, bool has_bias, DType dtype)
    : weight_(add_parameter("weight", {columns}, constant_values(1.0), dtype)) {
  if (has_bias) bias_ = add_parameter("bias", {columns}, constant_values(0.0), dtype);
}

RmsNorm::RmsNorm(int64_t columns, double epsilon, DType dtype)
    : weight_(add_parameter("weight", {columns}, constant_values(1.0), dtype)), epsilon_(epsilon) {}

RotaryPositions::RotaryPositions(const std::vector<float>& frequencies, DType dtype)
    : frequencies_(convert(from_values(frequencies, {static_cast<int64_t>(frequencies.size())}), dtype)) {}

Mlp::Mlp(const std::vector<int64_t>& widths) {
  expect(widths.size() >= 2, "an MLP needs at least the widths of its input and its output");
  for (size_t i = 0; i + 1 < widths.size(); ++i)
    layers_.push_back(&add_part<Linear>(concat("layers.", i), widths[i], widths[i + 1]));
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

TransformerBlock::TransformerBlock(Parts parts, const Names& names, uint32_t layer, double dropout,
                                   bool recomputes_attention)
    : parts_(std::move(parts)),
      layer_(layer),
      dropout_(dropout),
      recomputes_attention_(recomputes_attention) {
  add_part(names[0], *parts_.attention_norm);
  add_part(names[1], *parts_.attention);
  add_part(names[2], *parts_.feed_forward_norm);
  add_part(names[3], *parts_.feed_forward);
}

Tensor TransformerBlock::operator()(const Tensor& x, const Context& context) const {
  const Norm& norm = *parts_.feed_forward_norm;
  const FeedForward& feed_forward = *parts_.feed_forward;
  const double probability = context.training ? dropout_ : 0.0;
  // Site 0 is the embedding; each layer has three sites after it.
  const uint32_t site = 1 + 3 * layer_;
  if (probability == 0.0) {  // the matmuls add the residual
    const Tensor y = attend(x, context, site, true);
    return feed_forward(norm(y), y);
  }
  const Tensor attended = dropout(attend(x, context, site, false), probability, context.key(site + 1));
  const auto [y, normed] = norm.add(x, attended);
  return add(y, dropout(feed_forward(normed, {}), probability, context.key(site + 2)));
}

Tensor TransformerBlock::attend(const Tensor& x, const Context& context, uint32_t site, bool adds_x) const {
  const auto branch = [this, context, site, adds_x](const std::vector<Tensor>& inputs) {
    return (*parts_.attention)((*parts_.attention_norm)(inputs[0]), context, site,
                               adds_x ? inputs[0] : Tensor());
  };
  return recomputes_attention_ && context.training ? checkpoint(branch, {x}) : branch({x});
}

}  // namespace lockstep
