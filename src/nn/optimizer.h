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
  void step(double learning_rate, float gradient_scale = 1.0f) {
    prepare(learning_rate);
    apply({}, gradient_scale);
  }

  /// The same in two parts, for a step that is recorded once and replayed. prepare() counts the update and
  /// brings its learning rate to the device, ahead of each replay; update() is what is recorded. `clip`, one
  /// f32 element where the parameters are, multiplies the gradients; if it is NaN, nothing is updated.
  virtual void prepare(double learning_rate);
  void update(const Tensor& clip) { apply(clip, 1.0f); }

  /// Whether update() reads on the device whatever prepare() changes.
  virtual bool can_be_recorded() const { return false; }

  /// What a snapshot must keep besides the parameters and steps_taken(), named "<parameter>.<state>".
  virtual std::vector<NamedTensor> state() const { return {}; }

  /// Updates so far (Adam's t).
  int64_t steps_taken() const { return steps_taken_; }
  void set_steps_taken(int64_t steps) { steps_taken_ = steps; }

 protected:
  explicit Optimizer(std::vector<NamedTensor> parameters) : parameters_(std::move(parameters)) {}

  virtual void apply(const Tensor& clip, float gradient_scale) = 0;
  void expect_gradients() const;
  /// A tensor of zeros like each parameter, where it is.
  std::vector<Tensor> zeros_like_parameters() const;

  std::vector<NamedTensor> parameters_;
  double learning_rate_ = 0.0;
  int64_t steps_taken_ = 0;
};

}  // namespace lockstep
