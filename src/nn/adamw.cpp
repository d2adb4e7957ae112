// SPDX-License-Identifier: Apache-2.0
#include "nn/adamw.h"

#include <algorithm>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "tensor/create.h"

namespace lockstep {

AdamW::AdamW(ParameterSpace& space, Options options)
    : Optimizer(space, {"exp_avg", "exp_avg_sq"}), options_(options) {
  if (device_of(space.stream()) == Device::cuda) schedule_ = full({3}, 0.0, DType::f64, space.stream());
}

void AdamW::prepare(double learning_rate) {
  Optimizer::prepare(learning_rate);
  if (count_ && !schedule_) schedule_ = full({3}, 0.0, DType::f64, space_.stream());
  if (!schedule_) return;
  SetValues update{.y = schedule_.view(), .values = {learning_rate}, .count = 1};
  if (!count_) {
    std::ranges::copy(adamw_schedule(learning_rate, options_.beta1, options_.beta2, steps_taken_),
                      update.values.begin());
    update.count = 3;
  }
  launch(schedule_.stream(), update);
}

void AdamW::apply(std::span<const Range> ranges, const Tensor& clip, float gradient_scale) {
  if (count_)
    launch(space_.stream(), AdamWSchedule{.step = count_.view(),
                                          .schedule = schedule_.view(),
                                          .beta1 = options_.beta1,
                                          .beta2 = options_.beta2});
  AdamWStep update{.segments = {},
                   .learning_rate = learning_rate_,
                   .beta1 = options_.beta1,
                   .beta2 = options_.beta2,
                   .epsilon = options_.epsilon,
                   .step = count_ ? 1 : steps_taken_,  // the schedule has it
                   .gradient_scale = gradient_scale,
                   .schedule = schedule_.view(),
                   .clip = clip.view()};
  for (const auto& [range, group] : space_.by_group(ranges))
    update.segments.push_back({.parameter = space_.values().view(range),
                               .gradient = space_.gradients().view(range),
                               .first_moment = states_[0].flat.view(range),
                               .second_moment = states_[1].flat.view(range),
                               .weight_decay = group.decays ? options_.weight_decay : 0.0,
                               .learning_rate_factor = group.learning_rate_factor,
                               .compute_copy = space_.copies().view(range)});
  if (!update.segments.empty()) launch(space_.stream(), update);
}

}  // namespace lockstep
