// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/parameter_space.h"

#include <algorithm>
#include <set>

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

/// Draws the values of a parameter that have no seed of their own, unless they are drawn already.
static void seed_values(const Tensor& parameter, const DeclaredLeaf::Seed& seed) {
  const auto& state = Tape::state(parameter);
  if (!state->declared) return;
  state->declared->of_space = seed;
  if (!state->initial || !state->declared->with_seed || state->declared->has_own_seed) return;
  parameter.initialize_with_seed(seed.seed, seed.place);
  state->declared->has_own_seed = false;  // another space may draw again
}

ParameterSpace::ParameterSpace(const std::vector<NamedTensor>& listed, const SpaceOptions& options)
    : layout(listed, options.group, options.unit), memory_(std::make_shared<Memory>()) {
  std::set<const void*> seen;  // a tied tensor keeps its first place
  for (size_t i = 0; i < listed.size(); ++i)
    if (seen.insert(listed[i].tensor.id()).second)
      seed_values(listed[i].tensor, {options.seed, static_cast<uint32_t>(i)});
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

/// Returns whether a part of a buffer has an element that is not zero. It looks at a few at a time.
static bool has_number(const FlatBuffer& buffer, Range range) {
  for (Range piece{range.begin, range.begin}; piece.begin < range.end; piece.begin = piece.end) {
    piece.end = std::min(range.end, piece.begin + ParameterLayout::block);
    for (const double value : to_doubles(buffer.part(piece)))
      if (value != 0.0) return true;
  }
  return false;
}

bool ParameterSpace::Values::is_start_checked() const {
  return space_.memory_->may_be_zero || mode_of(space_.layout.stream()).is_dry;
}

std::vector<uint8_t> ParameterSpace::Values::find_numbers() const {
  const FlatBuffer& buffer = (*this)();
  std::vector<uint8_t> found;
  for (const Parameter& parameter : space_.layout.parameters()) {
    const Tensor& tensor = parameter.tensor;
    bool is_fine = parameter.is_frozen || tensor.shape().rank() < 2 || tensor.size() == 0 ||
                   Tape::state(tensor)->may_be_zero;
    for (const Range held : buffer.placement().ranges())
      is_fine = is_fine || has_number(buffer, intersection(held, parameter.place));
    found.push_back(is_fine ? 1 : 0);
  }
  return found;
}

void ParameterSpace::Values::expect_no_zero_matrix(const std::vector<uint8_t>& found) {
  allow_zeros();
  for (size_t p = 0; p < found.size(); ++p) {
    const Parameter& parameter = space_.layout.parameters()[p];
    require(found[p] != 0, "the matrix ", parameter.name, " ", parameter.tensor.shape(),
            " is all zeros at the first step: give it initial values. If zeros are meant, make them by "
            "constant_values(0.0), or call values.allow_zeros() of the ParameterSpace");
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
