// SPDX-License-Identifier: Apache-2.0
#include "nn/gradient_clip.h"

#include "tensor/create.h"

namespace lockstep {

GradientNorm measure_gradient_norm(const std::vector<NamedTensor>& parameters, double max_norm) {
  expect(!parameters.empty(), "the gradient norm of no parameters");
  SumOfSquares squares;
  for (const auto& [name, tensor] : parameters) {
    expect(static_cast<bool>(tensor.grad()), name, " has no gradient: call backward() first");
    squares.inputs.push_back(tensor.grad().view());
  }
  const Stream& stream = parameters[0].tensor.stream();
  const Tensor sum = empty({}, DType::f64, stream);
  squares.y = sum.view();
  launch(stream, squares);
  const GradientNorm result{.norm = empty({}, DType::f64, stream), .factor = empty({}, DType::f32, stream)};
  launch(stream, ClipFactor{.sum_of_squares = sum.view(),
                            .max_norm = max_norm,
                            .norm = result.norm.view(),
                            .factor = result.factor.view()});
  return result;
}

double gradient_norm(const std::vector<NamedTensor>& parameters) {
  return parameters.empty() ? 0.0 : item(measure_gradient_norm(parameters, 0.0).norm);
}

}  // namespace lockstep
