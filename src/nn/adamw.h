// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/optimizer.h"

namespace lockstep {

/// AdamW (Loshchilov & Hutter 2019) as PyTorch computes it. Weight decay applies to tensors of two and more
/// dimensions; biases and norm weights are not decayed.
class AdamW : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
  };

  AdamW(std::vector<NamedTensor> parameters, Options options);

  void prepare(double learning_rate) override;
  bool can_be_recorded() const override { return static_cast<bool>(schedule_); }
  std::vector<NamedTensor> state() const override;

 private:
  void apply(const Tensor& clip, float gradient_scale) override;

  Options options_;
  std::vector<Tensor> first_moments_;
  std::vector<Tensor> second_moments_;
  Tensor schedule_;  ///< on a GPU: what changes from step to step, as AdamWStep::schedule
};

}  // namespace lockstep
