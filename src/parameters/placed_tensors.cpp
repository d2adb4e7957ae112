// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/placed_tensors.h"

#include "lockstep/core/memory.h"

namespace lockstep {

SpaceTensors::SpaceTensors(const ParameterSpace& space, Optimizer* optimizer, int ranks)
    : SpaceTensors(space, optimizer, Ownership(static_cast<size_t>(ranks), {{0, space.layout.elements()}}),
                   space.layout.owned_ranges(ranks)) {}

SpaceTensors::SpaceTensors(const ParameterSpace& space, Optimizer* optimizer, const Ownership& values,
                           const Ownership& states)
    : space_(space), optimizer_(optimizer) {
  for (const Parameter& parameter : space.layout.parameters())
    tensors_.push_back({parameter.name, parameter.tensor.shape(), parameter.place});
  buffers_.push_back(
      {.state = "", .dtype = space.layout.dtype(), .elements = space.layout.elements(), .held = values});
  if (optimizer == nullptr) return;
  for (const std::string& name : optimizer->state_names())
    buffers_.push_back({.state = name,
                        .dtype = space.layout.dtype(),
                        .elements = space.layout.trainable_elements(),
                        .held = states});
}

/// Returns the buffer at its current address. DataParallel may move states.
const FlatBuffer& SpaceTensors::flat(size_t buffer) const {
  return buffer == 0 ? space_.values() : optimizer_->states().at(buffer - 1).flat;
}

void SpaceTensors::get(size_t buffer, Range range, std::byte* to) const {
  const FlatBuffer& there = flat(buffer);
  const View from = there.view(range);
  copy_bytes(to, cpu_stream(), from.data, there.memory().stream(), from.bytes());
}

void SpaceTensors::set(size_t buffer, Range range, const std::byte* from) {
  const FlatBuffer& there = flat(buffer);
  const View to = there.view(range);
  copy_bytes(to.data, there.memory().stream(), from, cpu_stream(), to.bytes());
}

}  // namespace lockstep
