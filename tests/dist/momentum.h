// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/sgd.h"
#include "lockstep/parameters/optimizer.h"

namespace lockstep {

/// An optimizer with one state per parameter.
class Momentum : public Optimizer {
 public:
  explicit Momentum(ParameterSpace& space) : Optimizer(space, {"momentum"}) {}
  bool can_be_recorded() const override { return true; }  // if the learning rate does not change

 private:
  void apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
             float gradient_scale) override {
    for (const UpdateSlice& part : parts)
      launch(stream, SgdStep{.parameter = part.value,
                             .gradient = part.gradient,
                             .learning_rate = learning_rate_,
                             .momentum = 0.9,
                             .velocity = part.states[0],
                             .gradient_scale = gradient_scale,
                             .clip = clip.view()});
    write_copies(stream, parts);
  }
};

}  // namespace lockstep
