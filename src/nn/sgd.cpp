// SPDX-License-Identifier: Apache-2.0
#include "nn/sgd.h"

#include "kernels/convert.h"
#include "kernels/sgd.h"

namespace lockstep {

Sgd::Sgd(ParameterSpace& space, Options options)
    : Optimizer(space, options.momentum != 0.0 ? std::vector<std::string>{"momentum_buffer"}
                                               : std::vector<std::string>{}),
      options_(options) {}

void Sgd::apply(std::span<const Range> ranges, const Tensor& clip, float gradient_scale) {
  for (const auto& [range, group] : space_.by_group(ranges))
    launch(space_.stream(), SgdStep{.parameter = part(space_.values(), range),
                                    .gradient = part(space_.gradients(), range),
                                    .learning_rate = learning_rate_ * group.learning_rate_factor,
                                    .weight_decay = group.decays ? options_.weight_decay : 0.0,
                                    .momentum = options_.momentum,
                                    .velocity = states_.empty() ? View{} : part(states_[0].flat, range),
                                    .gradient_scale = gradient_scale,
                                    .clip = clip.view()});
  if (!space_.copies()) return;
  for (const Range& range : ranges)
    launch(space_.stream(), Convert{.x = part(space_.values(), range), .y = part(space_.copies(), range)});
}

}  // namespace lockstep
