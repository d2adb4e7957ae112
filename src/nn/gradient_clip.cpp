// SPDX-License-Identifier: Apache-2.0
#include "nn/gradient_clip.h"

#include <algorithm>
#include <cmath>

#include "kernels/sum.h"
#include "tensor/create.h"

namespace lockstep {

double gradient_norm(const std::vector<NamedTensor>& parameters) {
  if (parameters.empty()) return 0.0;
  SumOfSquares squares;
  for (const auto& [name, tensor] : parameters) {
    expect(static_cast<bool>(tensor.grad()), name, " has no gradient: call backward() first");
    squares.inputs.push_back(tensor.grad().view());
  }
  const Stream& stream = parameters[0].tensor.stream();
  const Tensor sum = empty({}, DType::f64, stream);
  squares.y = sum.view();
  launch(stream, squares);
  return std::sqrt(item(sum));
}

float clip_factor(double norm, double max_norm) {
  if (max_norm == 0.0) return 1.0f;
  return static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

}  // namespace lockstep
