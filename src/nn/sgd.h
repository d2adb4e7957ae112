// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/optimizer.h"

namespace lockstep {

/// Stochastic gradient descent with PyTorch's momentum: velocity = momentum * velocity + gradient. Its
/// steps are not recorded as graphs, and parameters have no copies in 16 bits.
class Sgd : public Optimizer {
 public:
  struct Options {
    double momentum = 0.0;
    double weight_decay = 0.0;
  };

  Sgd(std::vector<NamedTensor> parameters, Options options);

  std::vector<NamedTensor> state() const override;

 private:
  void apply(const Tensor& clip, float gradient_scale) override;

  Options options_;
  std::vector<Tensor> velocities_;  ///< empty without momentum
};

}  // namespace lockstep
