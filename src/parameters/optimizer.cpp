// SPDX-License-Identifier: Apache-2.0
#include "parameters/optimizer.h"

#include <array>

#include "core/graph.h"
#include "kernels/grad_scale.h"
#include "tensor/create.h"

namespace lockstep {

Optimizer::Optimizer(ParameterSpace& space, const std::vector<std::string>& states) : space_(space) {
  for (const std::string& name : states) states_.push_back({name, {}});
}

const std::vector<Optimizer::State>& Optimizer::states() {
  if (!states_.empty() && !states_.front().flat) place_states(Placement::whole(space_.trainable_elements()));
  return states_;
}

std::vector<std::string> Optimizer::state_names() const {
  std::vector<std::string> names;
  for (const State& state : states_) names.push_back(state.name);
  return names;
}

void Optimizer::place_states(const Placement& placement) {
  const MemoryScope scope("optimizer");
  for (State& state : states_) {
    if (state.flat && state.flat.placement() == placement) continue;
    const FlatBuffer before = state.flat;
    state.flat = {full({placement.elements()}, 0.0, space_.dtype(), space_.stream()), placement};
    if (!before) continue;
    for (const Range& range : placement.ranges()) copy(before.part(range), state.flat.part(range));
  }
}

void Optimizer::place_states(const std::vector<Tensor>& memory, const Placement& placement,
                             std::span<const Range> mine) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const FlatBuffer before = states_[i].flat;
    states_[i].flat = {memory[i], placement};
    if (!before) continue;
    for (const Range& range : mine) copy(before.part(range), states_[i].flat.part(range));
  }
}

void Optimizer::step(double learning_rate, float gradient_scale) {
  expect_whole();
  space_.expect_gradients_without_scale();
  expect(!count_, "a GradScaler counts the steps of this optimizer: GradScaler::step() makes them");
  space_.gradients();
  states();
  prepare(learning_rate);
  apply(std::array{Range{0, space_.trainable_elements()}}, {}, gradient_scale);
}

void Optimizer::prepare(double learning_rate) {
  learning_rate_ = learning_rate;
  if (!count_) ++steps_taken_;
}

void Optimizer::count_on_device() {
  if (!count_) count_ = full({}, static_cast<double>(steps_taken_), DType::i32, space_.stream());
}

int64_t Optimizer::steps_taken() const { return count_ ? static_cast<int64_t>(item(count_)) : steps_taken_; }

void Optimizer::set_steps_taken(int64_t steps) {
  steps_taken_ = steps;
  if (count_) fill(count_, static_cast<double>(steps));
}

void Optimizer::expect_whole() const {
  space_.expect_gradients();
  expect(states_are_whole_,
         "each rank holds the optimizer's state of what it updates: go on with DataParallel::step()");
  expect(space_.values_are_whole(), "each rank holds a part of the values: go on with DataParallel::step()");
}

void Optimizer::update(const Tensor& clip) {
  expect_whole();
  update(std::array{Range{0, space_.trainable_elements()}}, clip);
}

void Optimizer::update(std::span<const Range> ranges, const Tensor& clip) {
  // What is recorded is replayed, and states are made once.
  expect(!is_recording_graph() || states_.empty() || states_.front().flat,
         "the first update is recorded, which makes the optimizer's states: call states() before");
  states();
  if (count_) launch(space_.stream(), CountStep{.count = count_.view(), .factor = clip.view()});
  apply(ranges, clip, 1.0f);
}

std::vector<NamedTensor> Optimizer::state() {
  std::vector<NamedTensor> all;
  for (const State& state : states()) {
    expect(state.flat.is_whole(space_.trainable_elements()),
           "this rank keeps the optimizer's states of what it updates");
    const std::vector<NamedTensor> parts = space_.named_parts(state.flat.memory(), state.name);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

}  // namespace lockstep
