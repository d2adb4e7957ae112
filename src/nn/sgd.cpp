// SPDX-License-Identifier: Apache-2.0
#include "nn/sgd.h"

#include "kernels/elementwise.h"
#include "kernels/sgd.h"
#include "tensor/create.h"

namespace lockstep {

Sgd::Sgd(std::vector<NamedTensor> parameters, Options options)
    : parameters_(std::move(parameters)), options_(options) {
  if (options_.momentum == 0.0) return;
  const MemoryScope scope("optimizer");
  for (const NamedTensor& parameter : parameters_)
    velocities_.push_back(zeros(parameter.tensor.shape(), parameter.tensor.dtype()));
}

void Sgd::step(double learning_rate, float gradient_scale) {
  for (const auto& [name, tensor] : parameters_)
    expect(static_cast<bool>(tensor.grad()), name, " has no gradient: call backward() before step()");
  ++steps_taken_;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor& tensor = parameters_[p].tensor;
    const Tensor gradient = tensor.grad();
    if (gradient_scale != 1.0f)
      launch(tensor.stream(), Scale{.x = gradient.view(), .y = gradient.view(), .factor = gradient_scale});
    launch(tensor.stream(), SgdStep{.parameter = tensor.view(),
                                    .gradient = gradient.view(),
                                    .learning_rate = learning_rate,
                                    .weight_decay = options_.weight_decay,
                                    .momentum = options_.momentum,
                                    .velocity = velocities_.empty() ? View{} : velocities_[p].view()});
  }
}

std::vector<NamedTensor> Sgd::state() const {
  std::vector<NamedTensor> all;
  for (size_t p = 0; p < velocities_.size(); ++p)
    all.push_back({parameters_[p].name + ".momentum_buffer", velocities_[p]});
  return all;
}

}  // namespace lockstep
