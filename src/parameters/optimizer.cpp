// SPDX-License-Identifier: Apache-2.0
#include "parameters/optimizer.h"

#include <array>

#include "kernels/grad_scale.h"
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
  space_.expect_gradients_without_scale();
  expect(!count_, "a GradScaler counts the steps of this optimizer: GradScaler::step() makes them");
  space_.gradients();
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
}

void Optimizer::update(const Tensor& clip) {
  expect_whole();
  update(std::array{Range{0, space_.trainable_elements()}}, clip);
}

void Optimizer::update(std::span<const Range> ranges, const Tensor& clip) {
  if (count_) launch(space_.stream(), CountStep{.count = count_.view(), .factor = clip.view()});
  apply(ranges, clip, 1.0f);
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
