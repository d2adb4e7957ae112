// SPDX-License-Identifier: Apache-2.0
#include "parameters/parameter_space.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/convert.h"
#include "tensor/create.h"
#include "tensor/tensor_state.h"

namespace lockstep {
namespace {

constexpr int64_t parameter_alignment = 16;

int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

/// Returns the name of the parameter's unit: its name up to the first number, or the name of its module.
std::string name_of_unit(const Parameter& parameter, const ParameterSpace::UnitRule& rule) {
  const std::string& name = parameter.name;
  if (!parameter.other_names.empty()) return name;
  if (rule) return rule(name);
  for (size_t begin = 0, end = 0; (end = name.find('.', begin)) != std::string::npos; begin = end + 1)
    if (name.find_first_not_of("0123456789", begin) == end) return name.substr(0, end);
  return name.substr(0, name.rfind('.'));
}

}  // namespace

ParameterGroup matrices_decay(const std::string&, const Tensor& tensor) {
  return {.decays = tensor.shape().rank() >= 2};
}

/// The state of a space that its tensors share. It outlives the space with them.
class ParameterSpace::Memory final : public ParameterMemory {
 public:
  std::byte* find(Range place, DType dtype) override {
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
  DType compute_dtype() const override { return precision; }

  const ParameterSpace* space = nullptr;  ///< null once the space is destroyed
  int64_t elements = 0;
  DType precision = DType::f32;  ///< the dtype in which the model computes
  bool keeps_copies = false;     ///< copies exist even in the dtype of the values
  FlatBuffer values;             ///< made at first use, like copies and gradients
  FlatBuffer copies;
  FlatBuffer gradients;
  Residency residency;
};

ParameterSpace::ParameterSpace(const std::vector<NamedTensor>& listed, const GroupRule& group,
                               const UnitRule& unit)
    : memory_(std::make_shared<Memory>()) {
  for (const NamedTensor& one : listed) add(one, group);
  lay_out(unit);
  dtype_ = parameters_.empty() ? DType::f32 : parameters_.front().tensor.dtype();
  stream_ = parameters_.empty() ? current_stream() : parameters_.front().tensor.stream();
  memory_->space = this;
  memory_->elements = elements();
  memory_->precision = dtype_;
  bool has_memory = parameters_.empty();
  for (const Parameter& parameter : parameters_) {
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
  for (const Parameter& parameter : parameters_)  // restores their state from before
    if (const auto& state = Tape::state(parameter.tensor); state->space == memory_) state->space = nullptr;
}

void ParameterSpace::add(const NamedTensor& listed, const GroupRule& group) {
  const auto& [name, tensor] = listed;
  expect(Tape::state(tensor) != nullptr && Tape::state(tensor)->node == nullptr, name,
         " is not a leaf: a parameter cannot be the result of an operation");
  for (Parameter& known : parameters_) {
    expect(known.name != name && std::ranges::count(known.other_names, name) == 0,
           "two parameters are called ", name);
    if (known.tensor.id() == tensor.id()) return known.other_names.push_back(name);
  }
  const Tensor& first = parameters_.empty() ? tensor : parameters_.front().tensor;
  expect(tensor.dtype() == first.dtype() && gpu_of(tensor.stream()) == gpu_of(first.stream()), name, " is ",
         tensor.dtype(), ", but must have the dtype and device of ",
         parameters_.empty() ? name : parameters_.front().name);
  parameters_.push_back({.name = name,
                         .other_names = {},
                         .tensor = tensor,
                         .place = {},
                         .group = group ? group(name, tensor) : ParameterGroup{},
                         .is_frozen = !tensor.requires_grad()});
}

void ParameterSpace::lay_out(const UnitRule& rule) {
  // Parameters are in reverse order of registration, those of a unit together at its last member's place.
  std::map<std::string, size_t> rank_of_unit;
  std::vector<size_t> order(parameters_.size()), unit(parameters_.size());
  for (size_t p = parameters_.size(); p-- > 0;)
    unit[p] = rank_of_unit.try_emplace(name_of_unit(parameters_[p], rule), rank_of_unit.size()).first->second;
  std::iota(order.rbegin(), order.rend(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t p) { return std::pair(parameters_[p].is_frozen, unit[p]); });

  int64_t end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    Parameter& parameter = parameters_[order[i]];
    const bool begins = i == 0 || unit[order[i - 1]] != unit[order[i]] ||
                        parameters_[order[i - 1]].is_frozen != parameter.is_frozen;
    if (begins) {
      end = round_up(end, block);
      if (!units_.empty()) units_.back().end = end;
      units_.push_back({end, end});
    }
    parameter.place = {end, end + parameter.tensor.size()};
    end = round_up(parameter.place.end, parameter_alignment);
    if (parameter.is_frozen) continue;
    trainable_ = round_up(end, block);
    if (groups_.empty() || groups_.back().group != parameter.group)
      groups_.push_back({.range = {parameter.place.begin, 0}, .group = parameter.group});
    groups_.back().range.end = trainable_;
  }
  if (!units_.empty()) units_.back().end = round_up(end, block);
  for (size_t i = 0; i + 1 < groups_.size(); ++i) groups_[i].range.end = groups_[i + 1].range.begin;
}

std::string ParameterSpace::initial_values() const {
  std::string rules;
  if (memory_->values) return rules;
  for (const Parameter& parameter : parameters_)
    rules += concat(parameter.name, " ", Tape::state(parameter.tensor)->initial->name, "\n");
  return rules;
}

const FlatBuffer& ParameterSpace::values() const {
  if (!memory_->values) {
    const MemoryScope scope("parameters");
    const FlatBuffer all = FlatBuffer::make(Placement::whole(elements()), dtype_, stream_);
    write_values({0, elements()}, all.memory());
    const_cast<ParameterSpace*>(this)->place_values(all);
    release_cached_memory(stream_);  // frees the old memory of the values
  }
  return memory_->values;
}

void ParameterSpace::write_values(Range range, const Tensor& target) const {
  if (memory_->values) return copy(memory_->values.part(range), target);
  fill(target, 0.0);
  for (const Parameter& parameter : parameters_) {
    const Range both = intersection(range, parameter.place);
    if (both.size() == 0) continue;
    const auto& state = Tape::state(parameter.tensor);
    const Tensor part = target.slice(both.begin - range.begin, both.end - range.begin);
    const int64_t first = both.begin - parameter.place.begin;
    if (state->initial)
      state->initial->fill(part, first);
    else
      copy(Tensor(state->storage, state->offset_bytes + first * bytes(dtype_), part.shape(), dtype_), part);
  }
}

void ParameterSpace::place_values(const FlatBuffer& buffer) {
  memory_->values = buffer;
  const bool is_whole = buffer.is_whole(elements());
  const auto& whole = Tape::state(buffer.memory());
  for (const Parameter& parameter : parameters_) {
    const auto& state = Tape::state(parameter.tensor);
    state->initial = nullptr;
    state->storage = is_whole ? whole->storage : std::make_shared<Storage>(Storage{nullptr, 0, stream_});
    state->offset_bytes = is_whole ? whole->offset_bytes + parameter.place.begin * bytes(dtype_) : 0;
  }
}

void ParameterSpace::set_residency(Residency residency) { memory_->residency = std::move(residency); }

std::vector<NamedTensor> ParameterSpace::named() const {
  std::vector<NamedTensor> all;
  for (const Parameter& parameter : parameters_) all.push_back({parameter.name, parameter.tensor});
  return all;
}

std::vector<NamedTensor> ParameterSpace::named_parts(const Tensor& flat, const std::string& suffix) const {
  std::vector<NamedTensor> all;
  for (const Parameter& parameter : parameters_)
    if (parameter.place.end <= flat.size())
      all.push_back(
          {concat(parameter.name, ".", suffix),
           flat.slice(parameter.place.begin, parameter.place.end).reshape(parameter.tensor.shape())});
  return all;
}

int ParameterSpace::unit_of(Range place) const {
  const auto after = std::ranges::upper_bound(units_, place.begin, {}, &Range::begin);
  return static_cast<int>(after - units_.begin()) - 1;
}

Ownership ParameterSpace::owned_ranges(int ranks, bool frozen_too) const {
  Ownership owned(static_cast<size_t>(ranks));
  for (const Range& unit : units_) {
    if (unit.begin >= trainable_ && !frozen_too) break;
    const int64_t blocks = unit.size() / block;
    for (int rank = 0; rank < ranks; ++rank) {
      const Range range{unit.begin + blocks * rank / ranks * block,
                        unit.begin + blocks * (rank + 1) / ranks * block};
      if (range.size() > 0) owned[static_cast<size_t>(rank)].push_back(range);
    }
  }
  return owned;
}

std::vector<ParameterSpace::GroupRange> ParameterSpace::by_group(std::span<const Range> ranges) const {
  std::vector<GroupRange> cut;
  for (const Range& range : ranges)
    for (const GroupRange& part : groups_)
      if (const Range both = intersection(range, part.range); both.size() > 0)
        cut.push_back({both, part.group});
  return cut;
}

void ParameterSpace::set_precision(DType dtype) {
  expect(dtype == DType::f32 || dtype_ == DType::f32, "copies in ", dtype, " of parameters in ", dtype_,
         "; they must be f32");
  if (dtype != precision()) memory_->copies = {};
  memory_->precision = dtype == DType::f32 ? dtype_ : dtype;
  if (memory_->values) refresh_copies();
}

DType ParameterSpace::precision() const { return memory_->precision; }

void ParameterSpace::keep_copies() { memory_->keeps_copies = true; }

bool ParameterSpace::has_copies() const { return precision() != dtype_ || memory_->keeps_copies; }

bool ParameterSpace::is_offloaded() const {
  return memory_->values && device_of(memory_->values.memory().stream()) != device_of(stream_);
}

const FlatBuffer& ParameterSpace::copies() const {
  if (has_copies() && !memory_->copies) {
    const MemoryScope scope("parameters");
    memory_->copies = FlatBuffer::make(values().placement(), precision(), stream_);
    refresh_copies();
  }
  return memory_->copies;
}

void ParameterSpace::place_copies(const FlatBuffer& buffer) {
  expect(buffer.dtype() == precision(), "copies in ", buffer.dtype(), " for a model in ", precision());
  memory_->copies = buffer;
}

void ParameterSpace::refresh_copies() const {
  if (!has_copies()) return;
  if (!memory_->copies) return void(copies());
  constexpr int64_t piece = int64_t{1} << 22;
  const FlatBuffer& masters = values();
  const Tensor& target = copies().memory();
  for (const Range& range : masters.placement().ranges()) {
    if (device_of(target.stream()) == device_of(update_stream())) {
      launch(update_stream(), Convert{.x = masters.view(range), .y = copies().view(range)});
      continue;
    }
    for (int64_t begin = range.begin; begin < range.end; begin += piece) {
      const Range some{begin, std::min(begin + piece, range.end)};
      const Tensor rounded = empty({some.size()}, precision(), update_stream());
      launch(update_stream(), Convert{.x = masters.view(some), .y = rounded.view()});
      copy(rounded, copies().part(some));
    }
  }
}

void ParameterSpace::bind_gradients(const Tensor& flat, bool accumulate) {
  expect(flat.size() == trainable_ && flat.dtype() == dtype_, "gradients are ", flat.shape(), " ",
         flat.dtype(), " for ", trainable_, " elements in ", dtype_);
  memory_->gradients = {flat, Placement::whole(trainable_)};
  for (const Parameter& parameter : parameters_) {
    if (parameter.is_frozen) continue;
    LeafGradient& leaf = leaf_gradient(parameter.tensor);
    leaf.buffer = flat.slice(parameter.place.begin, parameter.place.end).reshape(parameter.tensor.shape());
    leaf.accumulate = accumulate;
  }
}

void ParameterSpace::place_gradients(const FlatBuffer& buffer) { memory_->gradients = buffer; }

const FlatBuffer& ParameterSpace::gradients() {
  if (!memory_->gradients) {
    const MemoryScope scope("gradients");
    const Tensor flat = full({trainable_}, 0.0, dtype_, stream_);
    for (const Parameter& parameter : parameters_)  // gradients that backward() has left so far
      if (const Tensor gradient = parameter.tensor.grad())
        copy(gradient, flat.slice(parameter.place.begin, parameter.place.end));
    bind_gradients(flat);
  }
  return memory_->gradients;
}

void ParameterSpace::expect_gradients() const {
  for (const Parameter& parameter : parameters_)
    expect(parameter.is_frozen || static_cast<bool>(parameter.tensor.grad()), parameter.name,
           " has no gradient: call backward() first");
}

void ParameterSpace::set_gradients_are_whole(bool whole) { memory_->gradients_are_whole = whole; }

void ParameterSpace::set_gradients_have_no_scale() { memory_->gradients_are_scaled = false; }

void ParameterSpace::expect_gradients_without_scale() const {
  expect(!memory_->gradients_are_scaled,
         "the gradients are multiplied by a GradScaler's scale: call its unscale() after its backward(), or "
         "call its step() instead");
}

}  // namespace lockstep
