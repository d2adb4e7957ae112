// SPDX-License-Identifier: Apache-2.0
#include "tensor/checkpoint.h"

#include "tensor/tensor_state.h"

namespace lockstep {

Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>& inputs)>& function,
                  const std::vector<Tensor>& inputs) {
  // Recorded, although the tape goes when `y` goes: operations choose their variants by that, and it tells
  // which leaves the function reads.
  const uint64_t since = Tape::now();
  const Tensor y = function(inputs);
  const std::vector<Tensor> read = Tape::read_since(y, since);
  if (read.empty()) return y;
  // The inputs stay on the tape: what is recorded again hands its gradients to the operations that made them.
  return record("checkpoint", y.detach(), read, [function, inputs](const Tensor&, GradientContext& context) {
    const EnableGrad enable_grad;
    context.continue_through(function(inputs));
    return Gradients();
  });
}

}  // namespace lockstep
