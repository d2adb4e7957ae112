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
    launch(space_.stream(), SgdStep{.parameter = space_.values().view(range),
                                    .gradient = space_.gradients().view(range),
                                    .learning_rate = learning_rate_ * group.learning_rate_factor,
                                    .weight_decay = group.decays ? options_.weight_decay : 0.0,
                                    .momentum = options_.momentum,
                                    .velocity = states_.empty() ? View{} : states_[0].flat.view(range),
                                    .gradient_scale = gradient_scale,
                                    .clip = clip.view()});
  if (!space_.copies()) return;
  for (const Range& range : ranges)
    launch(space_.stream(), Convert{.x = space_.values().view(range), .y = space_.copies().view(range)});
}

}  // namespace lockstep
