// SPDX-License-Identifier: Apache-2.0
#include "nn/adamw.h"

#include "kernels/adamw.h"
#include "tensor/create.h"

namespace lockstep {

AdamW::AdamW(std::vector<NamedTensor> parameters, Options options)
    : parameters_(std::move(parameters)), options_(options) {
  const MemoryScope scope("optimizer");
  for (const NamedTensor& parameter : parameters_) {
    first_moments_.push_back(zeros(parameter.tensor.shape(), parameter.tensor.dtype()));
    second_moments_.push_back(zeros(parameter.tensor.shape(), parameter.tensor.dtype()));
  }
}

void AdamW::step(double learning_rate, float gradient_scale) {
  if (parameters_.empty()) return;
  AdamWStep update{.segments = {},
                   .learning_rate = learning_rate,
                   .beta1 = options_.beta1,
                   .beta2 = options_.beta2,
                   .epsilon = options_.epsilon,
                   .step = steps_taken_ + 1,
                   .gradient_scale = gradient_scale};
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const auto& [name, tensor] = parameters_[p];
    expect(static_cast<bool>(tensor.grad()), name, " has no gradient: call backward() before step()");
    const bool decays = tensor.shape().rank() >= 2;
    update.segments.push_back({.parameter = tensor.view(),
                               .gradient = tensor.grad().view(),
                               .first_moment = first_moments_[p].view(),
                               .second_moment = second_moments_[p].view(),
                               .weight_decay = decays ? options_.weight_decay : 0.0});
  }
  launch(parameters_[0].tensor.stream(), update);
  ++steps_taken_;
}

std::vector<NamedTensor> AdamW::state() const {
  std::vector<NamedTensor> all;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    all.push_back({parameters_[p].name + ".exp_avg", first_moments_[p]});
    all.push_back({parameters_[p].name + ".exp_avg_sq", second_moments_[p]});
  }
  return all;
}

}  // namespace lockstep
