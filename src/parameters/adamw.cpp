// SPDX-License-Identifier: Apache-2.0
#include "parameters/adamw.h"

#include <algorithm>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "tensor/create.h"

namespace lockstep {

AdamW::AdamW(ParameterSpace& space, Options options)
    : Optimizer(space, {"exp_avg", "exp_avg_sq"}), options_(options) {}

void AdamW::prepare(double learning_rate) {
  Optimizer::prepare(learning_rate);
  const Stream& stream = space_.values.update_stream();
  // Updates read the values that change per step from memory on a GPU, or if they count the steps.
  if (!count_ && device_of(stream) == Device::cpu)
    schedule_ = {};
  else if (!schedule_ || device_of(schedule_.stream()) != device_of(stream))
    schedule_ = full({3}, 0.0, DType::f64, stream);
  if (!schedule_) return;
  SetValues update{.y = schedule_.view(), .values = {learning_rate}, .count = 1};
  if (!count_) {
    std::ranges::copy(adamw_schedule(learning_rate, options_.beta1, options_.beta2, steps_taken_),
                      update.values.begin());
    update.count = 3;
  }
  launch(stream, update);
}

void AdamW::apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
                  float gradient_scale) {
  if (count_)
    launch(stream, AdamWSchedule{.step = count_.view(),
                                 .schedule = schedule_.view(),
                                 .beta1 = options_.beta1,
                                 .beta2 = options_.beta2});
  AdamWStep update{.slices = {},
                   .learning_rate = learning_rate_,
                   .beta1 = options_.beta1,
                   .beta2 = options_.beta2,
                   .epsilon = options_.epsilon,
                   .step = count_ ? 1 : steps_taken_,  // with a count, the schedule contains the step
                   .gradient_scale = gradient_scale,
                   .schedule = schedule_.view(),
                   .clip = clip.view()};
  for (const UpdateSlice& part : parts)
    update.slices.push_back({.parameter = part.value,
                             .gradient = part.gradient,
                             .first_moment = part.states[0],
                             .second_moment = part.states[1],
                             .weight_decay = part.group.weight_decay(options_.weight_decay),
                             .learning_rate_factor = part.group.learning_rate_factor,
                             .compute_copy = part.copy});
  if (!update.slices.empty()) launch(stream, update);
}

}  // namespace lockstep
