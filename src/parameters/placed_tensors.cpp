// SPDX-License-Identifier: Apache-2.0
#include "parameters/placed_tensors.h"

#include <algorithm>

#include "core/memory.h"

namespace lockstep {
namespace {

std::byte* at_element(const Tensor& tensor, int64_t element) {
  return static_cast<std::byte*>(tensor.view().data) + element * bytes(tensor.dtype());
}

void copy_out(const Tensor& tensor, int64_t begin, int64_t elements, std::byte* to) {
  copy_bytes(to, cpu_stream(), at_element(tensor, begin), tensor.stream(), elements * bytes(tensor.dtype()));
}

void copy_in(const Tensor& tensor, int64_t begin, int64_t elements, const std::byte* from) {
  copy_bytes(at_element(tensor, begin), tensor.stream(), from, cpu_stream(),
             elements * bytes(tensor.dtype()));
}

Ownership whole_on_each(int64_t elements, int ranks) {
  return Ownership(static_cast<size_t>(ranks), {{0, elements}});
}

}  // namespace

SpaceTensors::SpaceTensors(const ParameterSpace& space, Optimizer* optimizer, int ranks)
    : space_(space), optimizer_(optimizer) {
  for (const Parameter& parameter : space.parameters())
    tensors_.push_back({parameter.name, parameter.tensor.shape(), parameter.place});
  buffers_.push_back({.state = "",
                      .dtype = space.values().dtype(),
                      .elements = space.elements(),
                      .held = whole_on_each(space.elements(), ranks)});
  if (optimizer == nullptr) return;
  for (const Optimizer::State& state : optimizer->states())
    buffers_.push_back({.state = state.name,
                        .dtype = state.flat.dtype(),
                        .elements = state.flat.size(),
                        .held = space.segments(ranks)});
}

/// As it lies now: DataParallel may move states.
const Tensor& SpaceTensors::flat(size_t buffer) const {
  return buffer == 0 ? space_.values() : optimizer_->states().at(buffer - 1).flat;
}

void SpaceTensors::get(size_t buffer, Range range, std::byte* to) const {
  copy_out(flat(buffer), range.begin, range.size(), to);
}

void SpaceTensors::set(size_t buffer, Range range, const std::byte* from) {
  copy_in(flat(buffer), range.begin, range.size(), from);
}

}  // namespace lockstep
