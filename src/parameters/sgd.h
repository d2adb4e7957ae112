// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parameters/optimizer.h"

namespace lockstep {

/// SGD with PyTorch's momentum: velocity = momentum * velocity + gradient. Steps are not recorded as graphs.
class Sgd : public Optimizer {
 public:
  struct Options {
    double momentum = 0.0;
    double weight_decay = 0.0;
  };

  Sgd(ParameterSpace& space, Options options);

 private:
  void apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
             float gradient_scale) override;

  Options options_;
};

}  // namespace lockstep
