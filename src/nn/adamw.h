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

  void step(double learning_rate, float gradient_scale = 1.0f) override;
  std::vector<NamedTensor> state() const override;

 private:
  std::vector<NamedTensor> parameters_;
  Options options_;
  std::vector<Tensor> first_moments_;
  std::vector<Tensor> second_moments_;
};

}  // namespace lockstep
