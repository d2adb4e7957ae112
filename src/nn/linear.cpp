// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

namespace lockstep {

Linear::Linear(int64_t inputs, int64_t outputs, bool has_bias, DType dtype, WeightOrder order)
    : order_(order),
      weight_(add_parameter(
          "weight", order == WeightOrder::out_in ? Shape{outputs, inputs} : Shape{inputs, outputs}, dtype)) {
  if (has_bias) bias_ = add_parameter("bias", {outputs}, dtype);
}

Tensor Linear::operator()(const Tensor& x, const Tensor& residual) const {
  return linear(x, weight_, bias_, residual, order_);
}

}  // namespace lockstep
