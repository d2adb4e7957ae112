// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/optimizer.h"

namespace lockstep {

/// Stochastic gradient descent with PyTorch's momentum: velocity = momentum * velocity + gradient.
class Sgd : public Optimizer {
 public:
  struct Options {
    double momentum = 0.0;
    double weight_decay = 0.0;
  };

  Sgd(std::vector<NamedTensor> parameters, Options options);

  void step(double learning_rate, float gradient_scale = 1.0f) override;
  std::vector<NamedTensor> state() const override;

 private:
  std::vector<NamedTensor> parameters_;
  Options options_;
  std::vector<Tensor> velocities_;  ///< empty without momentum
};

}  // namespace lockstep
