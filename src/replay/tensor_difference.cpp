// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/tensor_difference.h"

#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/tensor/print.h"

namespace lockstep {
namespace {

std::vector<uint32_t> bits_of(const PlacedTensors& tensors, size_t buffer, Range place) {
  std::vector<uint32_t> bits(static_cast<size_t>(place.size()));
  tensors.get(buffer, place, reinterpret_cast<std::byte*>(bits.data()));
  return bits;
}

}  // namespace

std::optional<TensorDifference> first_difference(const PlacedTensors& a, const PlacedTensors& b) {
  std::optional<TensorDifference> first;
  for (size_t buffer = 0; buffer < a.buffers().size(); ++buffer) {
    const PlacedTensors::Buffer& what = a.buffers()[buffer];
    expect(what.dtype == DType::f32, "a buffer of ", what.dtype);
    for (const PlacedTensors::Entry& tensor : a.tensors()) {
      if (tensor.place.end > what.elements) continue;  // a frozen parameter has no state
      const std::vector<uint32_t> of_a = bits_of(a, buffer, tensor.place);
      const std::vector<uint32_t> of_b = bits_of(b, buffer, tensor.place);
      int64_t differing = 0;
      for (size_t i = 0; i < of_a.size(); ++i) {
        if (of_a[i] == of_b[i]) continue;
        ++differing;
        if (!first)
          first = {.tensor = what.state.empty() ? tensor.name : concat(tensor.name, ".", what.state),
                   .element = coordinates(static_cast<int64_t>(i), tensor.shape),
                   .a = hexadecimal(of_a[i], 8),
                   .b = hexadecimal(of_b[i], 8)};
      }
      if (differing > 0) first->elements += differing, ++first->tensors;
    }
  }
  return first;
}

std::string describe(const TensorDifference& difference, const std::string& a, const std::string& b) {
  return concat(difference.tensor, " ", difference.element, " is ", difference.a, " in ", a, " and ",
                difference.b, " in ", b, "; ", counted(difference.elements, "element"), " of ",
                counted(difference.tensors, "tensor"), difference.elements == 1 ? " differs" : " differ");
}

}  // namespace lockstep
