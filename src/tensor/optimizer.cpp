// SPDX-License-Identifier: Apache-2.0
#include "tensor/optimizer.h"

#include <array>

#include "tensor/create.h"

namespace lockstep {

Optimizer::Optimizer(ParameterSpace& space, const std::vector<std::string>& states) : space_(space) {
  const MemoryScope scope("optimizer");
  for (const std::string& name : states)
    states_.push_back(
        {name, full({space.trainable_elements()}, 0.0, space.values().dtype(), space.stream())});
}

void Optimizer::step(double learning_rate, float gradient_scale) {
  expect_whole();
  space_.gradients();
  prepare(learning_rate);
  apply(std::array{Range{0, space_.trainable_elements()}}, {}, gradient_scale);
}

void Optimizer::prepare(double learning_rate) {
  learning_rate_ = learning_rate;
  ++steps_taken_;
}

void Optimizer::expect_whole() const {
  space_.expect_gradients();
  expect(states_are_whole_,
         "each rank holds the optimizer's state of what it updates: go on with DataParallel::step()");
}

void Optimizer::update(const Tensor& clip) {
  expect_whole();
  apply(std::array{Range{0, space_.trainable_elements()}}, clip, 1.0f);
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> all;
  for (const State& state : states_) {
    const std::vector<NamedTensor> parts = space_.named_parts(state.flat, state.name);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

View Optimizer::part(const Tensor& flat, Range range) {
  if (!flat) return {};
  return {static_cast<std::byte*>(flat.view().data) + range.begin * bytes(flat.dtype()),
          {range.size()},
          flat.dtype()};
}

}  // namespace lockstep
