// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/core/graph.h"
#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/convert.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/grad_scale.h"
#include "lockstep/kernels/sgd.h"
#include "lockstep/parameters/host_update.h"
#include "lockstep/tensor/create.h"

namespace lockstep {

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(ParameterSpace& space, const std::vector<std::string>& states) : space_(space) {
  for (const std::string& name : states) states_.push_back({name, {}});
}

const std::vector<Optimizer::State>& Optimizer::states() {
  if (!states_.empty() && !states_.front().flat)
    place_states(Placement::whole(space_.layout.trainable_elements()));
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
    const bool is_there =
        state.flat && device_of(state.flat.memory().stream()) == device_of(space_.values.update_stream());
    if (is_there && state.flat.placement() == placement) continue;
    const FlatBuffer before = state.flat;
    state.flat = FlatBuffer::make(placement, space_.layout.dtype(), space_.values.update_stream());
    fill(state.flat.memory(), 0.0);
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
  if (!space_.values.is_start_checked()) space_.values.expect_no_zero_matrix(space_.values.find_numbers());
  space_.gradients.expect_unscaled();
  expect(!count_, "a GradScaler counts the steps of this optimizer: call GradScaler::step() instead");
  space_.gradients();
  states();
  prepare(learning_rate);
  const std::array all{Range{0, space_.layout.trainable_elements()}};
  apply(space_.layout.stream(), slices_of(all, space_.gradients(), space_.copies()), {}, gradient_scale);
}

void Optimizer::prepare(double learning_rate) {
  learning_rate_ = learning_rate;
  if (!count_) ++steps_taken_;
}

void Optimizer::count_on_device() {
  if (count_ && device_of(count_.stream()) == device_of(space_.values.update_stream())) return;
  count_ = full({}, static_cast<double>(steps_taken()), DType::i32, space_.values.update_stream());
}

int64_t Optimizer::steps_taken() const { return count_ ? static_cast<int64_t>(item(count_)) : steps_taken_; }

void Optimizer::set_steps_taken(int64_t steps) {
  steps_taken_ = steps;
  if (count_) fill(count_, static_cast<double>(steps));
}

void Optimizer::expect_whole() const {
  space_.gradients.expect_present();
  expect(
      states_are_whole_,
      "each rank holds only the optimizer's states of its owned ranges: continue with DataParallel::step()");
  expect(space_.values.are_whole(),
         "each rank holds only a part of the values: continue with DataParallel::step()");
}

void Optimizer::update(const Tensor& clip) {
  expect_whole();
  update(std::array{Range{0, space_.layout.trainable_elements()}}, clip);
}

void Optimizer::update(std::span<const Range> ranges, const Tensor& clip) {
  // Recorded work is replayed, but states must be made only once.
  expect(!is_recording_graph() || states_.empty() || states_.front().flat,
         "the first update makes the optimizer's states and must not be recorded: call states() before");
  states();
  if (space_.values.are_offloaded()) return update_on_host(ranges, clip);
  if (count_) launch(space_.layout.stream(), CountStep{.count = count_.view(), .factor = clip.view()});
  apply(space_.layout.stream(), slices_of(ranges, space_.gradients(), space_.copies()), clip, 1.0f);
}

void Optimizer::update_on_host(std::span<const Range> ranges, const Tensor& clip) {
  expect(!is_recording_graph(), "an update on the host cannot be recorded in a graph");
  const Tensor factor = to_stream(clip, cpu_stream());
  if (count_) {
    count_on_device();
    launch(cpu_stream(), CountStep{.count = count_.view(), .factor = factor.view()});
  }
  // A skipped step must send nothing, because pieces contain copies that no update has written.
  if (!std::isfinite(item(factor))) return;
  if (!host_update_) host_update_ = std::make_unique<HostUpdate>(space_);
  host_update_->run(ranges,
                    [&](std::span<const Range> piece, const FlatBuffer& gradients, const FlatBuffer& copies) {
                      apply(cpu_stream(), slices_of(piece, gradients, copies), factor, 1.0f);
                    });
}

std::vector<UpdateSlice> Optimizer::slices_of(std::span<const Range> ranges, const FlatBuffer& gradients,
                                              const FlatBuffer& copies) const {
  std::vector<UpdateSlice> parts;
  for (const auto& [range, group] : space_.layout.by_group(ranges)) {
    parts.push_back({.group = group,
                     .value = space_.values().view(range),
                     .gradient = gradients.view(range),
                     .states = {},
                     .copy = copies.view(range)});
    for (const State& state : states_) parts.back().states.push_back(state.flat.view(range));
  }
  return parts;
}

void Optimizer::write_copies(const Stream& stream, std::span<const UpdateSlice> parts) {
  for (const UpdateSlice& part : parts)
    if (part.copy) launch(stream, Convert{.x = part.value, .y = part.copy});
}

std::vector<NamedTensor> Optimizer::state() {
  std::vector<NamedTensor> all;
  for (const State& state : states()) {
    expect(state.flat.is_whole(space_.layout.trainable_elements()),
           "this rank keeps only the optimizer's states of its owned ranges");
    for (const auto& [name, others, tensor, place, group, is_frozen] : space_.layout.parameters())
      if (!is_frozen)
        all.push_back({concat(name, ".", state.name), state.flat.part(place).reshape(tensor.shape())});
  }
  return all;
}

AdamW::AdamW(ParameterSpace& space, Options options)
    : Optimizer(space, {"exp_avg", "exp_avg_sq"}), options_(options) {}

void AdamW::prepare(double learning_rate) {
  Optimizer::prepare(learning_rate);
  const Stream& stream = space_.values.update_stream();
  // Updates read the values that change per step from memory on a GPU, or if they count the steps.
  if (!count_ && device_of(stream) == Device::cpu)
    schedule_ = {};
  else if (!schedule_ || device_of(schedule_.stream()) != device_of(stream))
    schedule_ = full({3}, 0.0, DType::f64, stream);
  if (!schedule_) return;
  SetValues update{.y = schedule_.view(), .values = {learning_rate}, .count = 1};
  if (!count_) {
    std::ranges::copy(adamw_schedule(learning_rate, options_.beta1, options_.beta2, steps_taken_),
                      update.values.begin());
    update.count = 3;
  }
  launch(stream, update);
}

void AdamW::apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
                  float gradient_scale) {
  if (count_)
    launch(stream, AdamWSchedule{.step = count_.view(),
                                 .schedule = schedule_.view(),
                                 .beta1 = options_.beta1,
                                 .beta2 = options_.beta2});
  AdamWStep update{.slices = {},
                   .learning_rate = learning_rate_,
                   .beta1 = options_.beta1,
                   .beta2 = options_.beta2,
                   .epsilon = options_.epsilon,
                   .step = count_ ? 1 : steps_taken_,  // with a count, the schedule contains the step
                   .gradient_scale = gradient_scale,
                   .schedule = schedule_.view(),
                   .clip = clip.view()};
  for (const UpdateSlice& part : parts)
    update.slices.push_back({.parameter = part.value,
                             .gradient = part.gradient,
                             .first_moment = part.states[0],
                             .second_moment = part.states[1],
                             .weight_decay = part.group.weight_decay(options_.weight_decay),
                             .learning_rate_factor = part.group.learning_rate_factor,
                             .compute_copy = part.copy});
  if (!update.slices.empty()) launch(stream, update);
}

Sgd::Sgd(ParameterSpace& space, Options options)
    : Optimizer(space, options.momentum != 0.0 ? std::vector<std::string>{"momentum_buffer"}
                                               : std::vector<std::string>{}),
      options_(options) {}

void Sgd::apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
                float gradient_scale) {
  for (const UpdateSlice& part : parts)
    launch(stream, SgdStep{.parameter = part.value,
                           .gradient = part.gradient,
                           .learning_rate = learning_rate_ * part.group.learning_rate_factor,
                           .weight_decay = part.group.weight_decay(options_.weight_decay),
                           .momentum = options_.momentum,
                           .velocity = part.states.empty() ? View{} : part.states[0],
                           .gradient_scale = gradient_scale,
                           .clip = clip.view()});
  write_copies(stream, parts);
}

}  // namespace lockstep
