// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parameters/optimizer.h"

namespace lockstep {

/// AdamW (Loshchilov & Hutter 2019) as in PyTorch. A parameter's group decides about its weight decay.
class AdamW : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
  };

  AdamW(ParameterSpace& space, Options options);

  void prepare(double learning_rate) override;
  bool can_be_recorded() const override { return static_cast<bool>(schedule_); }

 private:
  void apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
             float gradient_scale) override;

  Options options_;
  Tensor schedule_;  ///< AdamWStep::schedule if updates read it from memory, else empty
};

}  // namespace lockstep
