// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

/// Updates parameters from their gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update with this learning rate; gradients are multiplied by `gradient_scale` (the clip factor) on
  /// the way. Throws Error naming a parameter that has no gradient.
  virtual void step(double learning_rate, float gradient_scale = 1.0f) = 0;

  /// What a snapshot must keep besides the parameters and steps_taken(), named "<parameter>.<state>".
  virtual std::vector<NamedTensor> state() const { return {}; }

  /// Updates so far (Adam's t).
  int64_t steps_taken() const { return steps_taken_; }
  void set_steps_taken(int64_t steps) { steps_taken_ = steps; }

 protected:
  int64_t steps_taken_ = 0;
};

}  // namespace lockstep
