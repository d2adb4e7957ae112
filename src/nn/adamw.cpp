// SPDX-License-Identifier: Apache-2.0
#include "nn/adamw.h"

#include <algorithm>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "tensor/create.h"

namespace lockstep {

AdamW::AdamW(std::vector<NamedTensor> parameters, Options options)
    : Optimizer(std::move(parameters)),
      options_(options),
      first_moments_(zeros_like_parameters()),
      second_moments_(zeros_like_parameters()) {
  const bool on_gpu = !parameters_.empty() && device_of(parameters_[0].tensor.stream()) == Device::cuda;
  if (on_gpu) schedule_ = full({3}, 0.0, DType::f64, parameters_[0].tensor.stream());
}

void AdamW::prepare(double learning_rate) {
  Optimizer::prepare(learning_rate);
  if (!schedule_) return;
  SetValues update{.y = schedule_.view(), .values = {}, .count = 3};
  std::ranges::copy(adamw_schedule(learning_rate, options_.beta1, options_.beta2, steps_taken_),
                    update.values.begin());
  launch(schedule_.stream(), update);
}

void AdamW::apply(const Tensor& clip, float gradient_scale) {
  if (parameters_.empty()) return;
  expect_gradients();
  AdamWStep update{.segments = {},
                   .learning_rate = learning_rate_,
                   .beta1 = options_.beta1,
                   .beta2 = options_.beta2,
                   .epsilon = options_.epsilon,
                   .step = steps_taken_,
                   .gradient_scale = gradient_scale,
                   .schedule = schedule_.view(),
                   .clip = clip.view()};
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor& tensor = parameters_[p].tensor;
    const bool decays = tensor.shape().rank() >= 2;
    update.segments.push_back({.parameter = tensor.view(),
                               .gradient = tensor.grad().view(),
                               .first_moment = first_moments_[p].view(),
                               .second_moment = second_moments_[p].view(),
                               .weight_decay = decays ? options_.weight_decay : 0.0,
                               .compute_copy = tensor.compute_copy().view()});
  }
  launch(parameters_[0].tensor.stream(), update);
}

std::vector<NamedTensor> AdamW::state() const {
  std::vector<NamedTensor> all;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    all.push_back({parameters_[p].name + ".exp_avg", first_moments_[p]});
    all.push_back({parameters_[p].name + ".exp_avg_sq", second_moments_[p]});
  }
  return all;
}

}  // namespace lockstep
