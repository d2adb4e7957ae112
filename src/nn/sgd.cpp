// SPDX-License-Identifier: Apache-2.0
#include "nn/sgd.h"

#include "kernels/sgd.h"

namespace lockstep {

Sgd::Sgd(std::vector<NamedTensor> parameters, Options options)
    : Optimizer(std::move(parameters)), options_(options) {
  if (options_.momentum != 0.0) velocities_ = zeros_like_parameters();
}

void Sgd::apply(const Tensor& clip, float gradient_scale) {
  expect_gradients();
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor& tensor = parameters_[p].tensor;
    expect(!tensor.compute_copy(), parameters_[p].name, " has a copy in 16 bits, which SGD does not renew");
    launch(tensor.stream(), SgdStep{.parameter = tensor.view(),
                                    .gradient = tensor.grad().view(),
                                    .learning_rate = learning_rate_,
                                    .weight_decay = options_.weight_decay,
                                    .momentum = options_.momentum,
                                    .velocity = velocities_.empty() ? View{} : velocities_[p].view(),
                                    .gradient_scale = gradient_scale,
                                    .clip = clip.view()});
  }
}

std::vector<NamedTensor> Sgd::state() const {
  std::vector<NamedTensor> all;
  for (size_t p = 0; p < velocities_.size(); ++p)
    all.push_back({parameters_[p].name + ".momentum_buffer", velocities_[p]});
  return all;
}

}  // namespace lockstep
