// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/checkpoint.h"

#include <algorithm>

#include "lockstep/tensor/tensor_state.h"

namespace lockstep {

Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>& inputs)>& function,
                  const std::vector<Tensor>& inputs) {
  // This run is recorded, although its tape is freed with `y`. Operations choose their variants by whether
  // they are recorded. The tape also shows which leaves the function reads.
  const uint64_t since = Tape::now();
  const Tensor y = function(inputs);
  const std::vector<Tensor> read = Tape::read_since(y, since);
  if (read.empty()) return y;
  // The inputs stay on the tape. So the operations that are recorded again pass gradients to the operations
  // that computed the inputs.
  const Tensor result =
      record("checkpoint", y.detach(), read, [function, inputs](const Tensor&, GradientContext& context) {
        const EnableGrad enable_grad;
        context.continue_through(function(inputs));
        return Gradients();
      });
  // A bias that the function computes is not among the inputs.
  const auto bias = std::ranges::find(read, Tape::bias_of(y).id(), &Tensor::id);
  if (bias != read.end()) set_bias_input(result, static_cast<size_t>(bias - read.begin()));
  return result;
}

Tensor checkpoint_sequential(const std::vector<std::function<Tensor(const Tensor& x)>>& functions,
                             int64_t segments, const Tensor& input) {
  const auto count = static_cast<int64_t>(functions.size());
  expect(segments >= 1 && segments <= count, "checkpoint_sequential: ", segments, " segments of ", count,
         " functions; from 1 to ", count, " are possible");
  Tensor x = input;
  for (int64_t segment = 0; segment < segments; ++segment) {
    const auto begin = functions.begin() + count * segment / segments;
    const auto end = functions.begin() + count * (segment + 1) / segments;
    const auto run = [part = std::vector(begin, end)](const std::vector<Tensor>& inputs) {
      Tensor y = inputs[0];
      for (const auto& function : part) y = function(y);
      return y;
    };
    x = segment + 1 < segments ? checkpoint(run, {x}) : run({x});
  }
  return x;
}

}  // namespace lockstep
