// SPDX-License-Identifier: Apache-2.0
#include "parameters/sgd.h"

#include "kernels/sgd.h"

namespace lockstep {

Sgd::Sgd(ParameterSpace& space, Options options)
    : Optimizer(space, options.momentum != 0.0 ? std::vector<std::string>{"momentum_buffer"}
                                               : std::vector<std::string>{}),
      options_(options) {}

void Sgd::apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
                float gradient_scale) {
  for (const UpdateSlice& part : parts)
    launch(stream, SgdStep{.parameter = part.value,
                           .gradient = part.gradient,
                           .learning_rate = learning_rate_ * part.group.learning_rate_factor,
                           .weight_decay = part.group.weight_decay(options_.weight_decay),
                           .momentum = options_.momentum,
                           .velocity = part.states.empty() ? View{} : part.states[0],
                           .gradient_scale = gradient_scale,
                           .clip = clip.view()});
  write_copies(stream, parts);
}

}  // namespace lockstep
