// SPDX-License-Identifier: Apache-2.0
#include "nn/precision.h"

#include "kernels/convert.h"
#include "tensor/create.h"

namespace lockstep {

void set_precision(const std::vector<NamedTensor>& parameters, DType dtype) {
  const MemoryScope scope("parameters");
  for (NamedTensor parameter : parameters) {
    Tensor& tensor = parameter.tensor;
    expect(tensor.dtype() == DType::f32, parameter.name, " is ", tensor.dtype(),
           "; f32 is needed beside 16 bits");
    const Tensor copy = dtype == DType::f32 ? Tensor() : empty(tensor.shape(), dtype, tensor.stream());
    tensor.set_compute_copy(copy);
  }
  refresh_compute_copies(parameters);
}

void refresh_compute_copies(const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, tensor] : parameters)
    if (const Tensor copy = tensor.compute_copy())
      launch(tensor.stream(), Convert{.x = tensor.view(), .y = copy.view()});
}

}  // namespace lockstep
