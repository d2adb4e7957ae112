// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/convert.h"
#include "kernels/sgd.h"
#include "parameters/optimizer.h"

namespace lockstep {

/// An optimizer with one state.
class Momentum : public Optimizer {
 public:
  explicit Momentum(ParameterSpace& space) : Optimizer(space, {"momentum"}) {}
  bool can_be_recorded() const override { return true; }  // if the learning rate stays the same

 private:
  void apply(std::span<const Range> ranges, const Tensor& clip, float gradient_scale) override {
    for (const Range& range : ranges) {
      launch(space_.stream(), SgdStep{.parameter = space_.values().view(range),
                                      .gradient = space_.gradients().view(range),
                                      .learning_rate = learning_rate_,
                                      .momentum = 0.9,
                                      .velocity = states_[0].flat.view(range),
                                      .gradient_scale = gradient_scale,
                                      .clip = clip.view()});
      if (space_.copies())
        launch(space_.stream(), Convert{.x = space_.values().view(range), .y = space_.copies().view(range)});
    }
  }
};

}  // namespace lockstep
