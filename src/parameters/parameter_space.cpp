// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/parameter_space.h"

#include <algorithm>
#include <utility>

#include "lockstep/kernels/convert.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/tensor_state.h"

namespace lockstep {

std::byte* ParameterSpace::Memory::find(Range place, DType dtype) {
  if (space) {
    space->values();
    space->copies();
  }
  const FlatBuffer& buffer = copies && dtype == copies.dtype() ? copies : values;
  expect(buffer && buffer.dtype() == dtype, "a parameter in ", values ? values.dtype() : dtype,
         " has no copy in ", dtype, ", which this operation computes in");
  if (buffer.is_whole(elements)) return static_cast<std::byte*>(buffer.view(place).data);
  expect(dtype == precision, "an operation reads a sharded parameter in ", dtype,
         ", but the model computes in ", precision, ": convert() the operation's other inputs");
  expect(static_cast<bool>(residency),
         "this rank keeps a part of the parameters, and the DataParallel that gathers the rest no longer "
         "exists");
  return residency(place, dtype);
}

ParameterSpace::ParameterSpace(const std::vector<NamedTensor>& listed, const SpaceOptions& options)
    : layout(listed, options.group, options.unit), memory_(std::make_shared<Memory>()) {
  for (size_t i = 0; i < listed.size(); ++i) {
    const auto& initial = Tape::state(listed[i].tensor)->initial;
    if (initial && initial->with_seed)
      listed[i].tensor.initialize_with_seed(options.seed, static_cast<uint32_t>(i));
  }
  memory_->space = this;
  memory_->elements = layout.elements();
  memory_->precision = layout.dtype();
  bool has_memory = layout.parameters().empty();
  for (const Parameter& parameter : layout.parameters()) {
    const auto& state = Tape::state(parameter.tensor);
    has_memory |= state->storage->data != nullptr;
    state->space = memory_;
    state->place = parameter.place.begin;
  }
  // Parameters that have memory already move now: handles to that memory would miss a later move.
  if (has_memory) values();
}

ParameterSpace::~ParameterSpace() {
  memory_->space = nullptr;
  if (memory_->values) return;
  for (const Parameter& parameter : layout.parameters())  // restores their state from before
    if (const auto& state = Tape::state(parameter.tensor); state->space == memory_) state->space = nullptr;
}

void ParameterSpace::set_precision(DType dtype) {
  expect(dtype == DType::f32 || layout.dtype() == DType::f32, "copies in ", dtype, " of parameters in ",
         layout.dtype(), "; they must be f32");
  if (dtype != precision()) memory_->copies = {};
  memory_->precision = dtype == DType::f32 ? layout.dtype() : dtype;
  if (memory_->values) copies.refresh();
}

const FlatBuffer& ParameterSpace::Values::operator()() const {
  FlatBuffer& made = space_.memory_->values;
  if (!made) {
    const MemoryScope scope("parameters");
    const Range all{0, space_.layout.elements()};
    const FlatBuffer buffer =
        FlatBuffer::make(Placement({all}), space_.layout.dtype(), space_.layout.stream());
    write(all, buffer.memory());
    space_.values.place(buffer);
    release_cached_memory(space_.layout.stream());  // frees the old memory of the values
  }
  return made;
}

std::string ParameterSpace::Values::definition() const {
  std::string rules;
  if (space_.memory_->values) return rules;
  for (const Parameter& parameter : space_.layout.parameters())
    rules += concat(parameter.name, " ", Tape::state(parameter.tensor)->initial->name, "\n");
  return rules;
}

void ParameterSpace::Values::write(Range range, const Tensor& target) const {
  if (space_.memory_->values) return copy(space_.memory_->values.part(range), target);
  fill(target, 0.0);
  const DType dtype = space_.layout.dtype();
  for (const Parameter& parameter : space_.layout.parameters()) {
    const Range both = intersection(range, parameter.place);
    if (both.size() == 0) continue;
    const auto& state = Tape::state(parameter.tensor);
    const Tensor part = target.slice(both.begin - range.begin, both.end - range.begin);
    const int64_t first = both.begin - parameter.place.begin;
    if (state->initial)
      state->initial->fill(part, first);
    else
      copy(Tensor(state->storage, state->offset_bytes + first * bytes(dtype), part.shape(), dtype), part);
  }
}

/// Returns whether every element of a range that the buffer holds is zero. A few elements come first, because
/// they usually decide.
static bool is_zero(const FlatBuffer& buffer, Range range) {
  constexpr int64_t few = 64;
  for (const Range part : {Range{range.begin, std::min(range.begin + few, range.end)}, range})
    for (const double value : to_doubles(buffer.part(part)))
      if (value != 0.0) return false;
  return true;
}

void ParameterSpace::Values::expect_no_zero_matrix() const {
  if (std::exchange(space_.memory_->may_be_zero, true) || mode_of(space_.layout.stream()).is_dry) return;
  const FlatBuffer& buffer = (*this)();
  for (const Parameter& parameter : space_.layout.parameters()) {
    const auto& declared = Tape::state(parameter.tensor)->declared;
    if (parameter.is_frozen || parameter.tensor.shape().rank() < 2 || parameter.tensor.size() == 0) continue;
    if (declared && declared->may_be_zero) continue;
    for (const Range held : buffer.placement().ranges())
      require(intersection(held, parameter.place) != parameter.place || !is_zero(buffer, parameter.place),
              "the matrix ", parameter.name, " ", parameter.tensor.shape(),
              " is all zeros at the first step: give it initial values, or declare it with "
              "constant_values(0.0) if zeros are meant");
  }
}

void ParameterSpace::Values::place(const FlatBuffer& buffer) {
  space_.memory_->values = buffer;
  const bool is_whole = buffer.is_whole(space_.layout.elements());
  const auto& whole = Tape::state(buffer.memory());
  for (const Parameter& parameter : space_.layout.parameters()) {
    const auto& state = Tape::state(parameter.tensor);
    const int64_t offset = parameter.place.begin * bytes(space_.layout.dtype());
    state->initial = nullptr;
    state->storage =
        is_whole ? whole->storage : std::make_shared<Storage>(Storage{nullptr, 0, space_.layout.stream()});
    state->offset_bytes = is_whole ? whole->offset_bytes + offset : 0;
  }
}

const FlatBuffer& ParameterSpace::Copies::operator()() const {
  FlatBuffer& made = space_.memory_->copies;
  if (exist() && !made) {
    const MemoryScope scope("parameters");
    made = FlatBuffer::make(space_.values().placement(), space_.precision(), space_.layout.stream());
    refresh();
  }
  return made;
}

void ParameterSpace::Copies::place(const FlatBuffer& buffer) {
  expect(buffer.dtype() == space_.precision(), "copies in ", buffer.dtype(), " for a model in ",
         space_.precision());
  space_.memory_->copies = buffer;
}

void ParameterSpace::Copies::refresh() const {
  if (!exist()) return;
  const FlatBuffer& target = space_.memory_->copies;
  if (!target) return void((*this)());
  constexpr int64_t piece = int64_t{1} << 22;
  const FlatBuffer& masters = space_.values();
  const Stream& stream = space_.values.update_stream();
  for (const Range& range : masters.placement().ranges()) {
    if (device_of(target.memory().stream()) == device_of(stream)) {
      launch(stream, Convert{.x = masters.view(range), .y = target.view(range)});
      continue;
    }
    for (int64_t begin = range.begin; begin < range.end; begin += piece) {
      const Range some{begin, std::min(begin + piece, range.end)};
      const Tensor rounded = empty({some.size()}, space_.precision(), stream);
      launch(stream, Convert{.x = masters.view(some), .y = rounded.view()});
      copy(rounded, target.part(some));
    }
  }
}

const FlatBuffer& ParameterSpace::Gradients::operator()() {
  if (!space_.memory_->gradients) {
    const MemoryScope scope("gradients");
    const Tensor flat =
        full({space_.layout.trainable_elements()}, 0.0, space_.layout.dtype(), space_.layout.stream());
    // backward() may have left gradients so far.
    for (const Parameter& parameter : space_.layout.parameters())
      if (const Tensor gradient = parameter.tensor.grad())
        copy(gradient, flat.slice(parameter.place.begin, parameter.place.end));
    bind(flat);
  }
  return space_.memory_->gradients;
}

void ParameterSpace::Gradients::bind(const Tensor& flat, bool accumulate) {
  const int64_t elements = space_.layout.trainable_elements();
  const DType dtype = space_.layout.dtype();
  expect(flat.size() == elements && flat.dtype() == dtype, "gradients are ", flat.shape(), " ", flat.dtype(),
         " for ", elements, " elements in ", dtype);
  space_.memory_->gradients = {flat, Placement::whole(elements)};
  for (const Parameter& parameter : space_.layout.parameters()) {
    if (parameter.is_frozen) continue;
    LeafGradient& leaf = leaf_gradient(parameter.tensor);
    leaf.buffer = flat.slice(parameter.place.begin, parameter.place.end).reshape(parameter.tensor.shape());
    leaf.accumulate = accumulate;
  }
}

void ParameterSpace::Gradients::expect_present() const {
  for (const Parameter& parameter : space_.layout.parameters())
    expect(parameter.is_frozen || static_cast<bool>(parameter.tensor.grad()), parameter.name,
           " has no gradient: call backward() first");
}

void ParameterSpace::Gradients::expect_unscaled() const {
  expect(!space_.memory_->gradients_are_scaled,
         "the gradients are multiplied by a GradScaler's scale: call its unscale() after its backward(), or "
         "call its step() instead");
}

}  // namespace lockstep
