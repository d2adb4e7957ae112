// SPDX-License-Identifier: Apache-2.0
#include "nn/optimizer.h"

#include "tensor/create.h"

namespace lockstep {

void Optimizer::prepare(double learning_rate) {
  learning_rate_ = learning_rate;
  ++steps_taken_;
}

void Optimizer::expect_gradients() const {
  for (const auto& [name, tensor] : parameters_)
    expect(static_cast<bool>(tensor.grad()), name, " has no gradient: call backward() before step()");
}

std::vector<Tensor> Optimizer::zeros_like_parameters() const {
  const MemoryScope scope("optimizer");
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : parameters_)
    tensors.push_back(full(tensor.shape(), 0.0, tensor.dtype(), tensor.stream()));
  return tensors;
}

}  // namespace lockstep
