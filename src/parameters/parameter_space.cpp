// SPDX-License-Identifier: Apache-2.0
#include "parameters/parameter_space.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "kernels/convert.h"
#include "tensor/create.h"
#include "tensor/tensor_state.h"

namespace lockstep {
namespace {

constexpr int64_t parameter_alignment = 16;

int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

/// The part of a model that a parameter belongs to: up to the first number, else its module.
std::string unit_of(const Parameter& parameter) {
  const std::string& name = parameter.name;
  if (!parameter.other_names.empty()) return name;
  for (size_t begin = 0, end = 0; (end = name.find('.', begin)) != std::string::npos; begin = end + 1)
    if (name.find_first_not_of("0123456789", begin) == end) return name.substr(0, end);
  return name.substr(0, name.rfind('.'));
}

}  // namespace

ParameterGroup matrices_decay(const std::string&, const Tensor& tensor) {
  return {.decays = tensor.shape().rank() >= 2};
}

ParameterSpace::ParameterSpace(const std::vector<NamedTensor>& listed, const GroupRule& group)
    : memory_(std::make_shared<FlatMemory>()) {
  for (const NamedTensor& one : listed) add(one, group);
  lay_out();
  make_values();
}

ParameterSpace::~ParameterSpace() = default;

void ParameterSpace::add(const NamedTensor& listed, const GroupRule& group) {
  const auto& [name, tensor] = listed;
  expect(Tape::state(tensor) != nullptr && Tape::state(tensor)->node == nullptr, name,
         " is not a leaf: a parameter is made, not computed");
  for (Parameter& known : parameters_) {
    expect(known.name != name && std::ranges::count(known.other_names, name) == 0,
           "two parameters are called ", name);
    if (known.tensor.id() == tensor.id()) return known.other_names.push_back(name);
  }
  const Tensor& first = parameters_.empty() ? tensor : parameters_.front().tensor;
  expect(tensor.dtype() == first.dtype() && gpu_of(tensor.stream()) == gpu_of(first.stream()), name, " is ",
         tensor.dtype(), ", or on another device, than ",
         parameters_.empty() ? name : parameters_.front().name);
  parameters_.push_back({.name = name,
                         .other_names = {},
                         .tensor = tensor,
                         .place = {},
                         .group = group ? group(name, tensor) : ParameterGroup{},
                         .is_frozen = !tensor.requires_grad()});
}

void ParameterSpace::lay_out() {
  // In reverse order of registration, and what belongs to one unit together, where its last member lies.
  std::map<std::string, size_t> rank_of_unit;
  std::vector<size_t> order(parameters_.size()), unit(parameters_.size());
  for (size_t p = parameters_.size(); p-- > 0;)
    unit[p] = rank_of_unit.try_emplace(unit_of(parameters_[p]), rank_of_unit.size()).first->second;
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

void ParameterSpace::make_values() {
  const MemoryScope scope("parameters");
  const DType dtype = parameters_.empty() ? DType::f32 : parameters_.front().tensor.dtype();
  const Stream stream = parameters_.empty() ? current_stream() : parameters_.front().tensor.stream();
  memory_->values = full({units_.empty() ? 0 : units_.back().end}, 0.0, dtype, stream);
  move_values(Tape::state(memory_->values)->storage);
  release_cached_memory(stream);  // where they were
  for (const Parameter& parameter : parameters_) {
    const auto& state = Tape::state(parameter.tensor);
    state->space = memory_;
    state->place = parameter.place.begin;
  }
}

void ParameterSpace::move_values(const std::shared_ptr<Storage>& storage) {
  if (Tape::state(memory_->values)->storage != storage) memory_->values.move_to(storage, 0);
  for (Parameter& parameter : parameters_)
    parameter.tensor.move_to(storage, parameter.place.begin * bytes(values().dtype()));
}

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

Ownership ParameterSpace::segments(int ranks) const {
  Ownership owned(static_cast<size_t>(ranks));
  for (const Range& unit : units_) {
    if (unit.begin >= trainable_) break;
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

const Tensor& ParameterSpace::values() const { return memory_->values; }
const Tensor& ParameterSpace::copies() const { return memory_->copies; }

void ParameterSpace::set_precision(DType dtype) {
  const MemoryScope scope("parameters");
  expect(dtype == DType::f32 || values().dtype() == DType::f32, "copies in ", dtype, " of parameters in ",
         values().dtype(), "; they must be f32");
  if (dtype == DType::f32)
    memory_->copies = {};
  else if (!copies() || copies().dtype() != dtype)
    memory_->copies = empty(values().shape(), dtype, stream());
  refresh_copies();
}

void ParameterSpace::refresh_copies() const {
  if (copies()) launch(stream(), Convert{.x = values().view(), .y = copies().view()});
}

void ParameterSpace::bind_gradients(const Tensor& flat, bool accumulate) {
  expect(flat.size() == trainable_ && flat.dtype() == values().dtype(), "gradients are ", flat.shape(), " ",
         flat.dtype(), " for ", trainable_, " elements in ", values().dtype());
  memory_->gradients = flat;
  for (const Parameter& parameter : parameters_) {
    if (parameter.is_frozen) continue;
    LeafGradient& leaf = leaf_gradient(parameter.tensor);
    leaf.buffer = flat.slice(parameter.place.begin, parameter.place.end).reshape(parameter.tensor.shape());
    leaf.accumulate = accumulate;
  }
}

const Tensor& ParameterSpace::gradients() {
  if (!memory_->gradients) {
    const MemoryScope scope("gradients");
    const Tensor flat = full({trainable_}, 0.0, values().dtype(), stream());
    for (const Parameter& parameter : parameters_)  // what backward() has left so far
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
         "its step(), which does all that is to be done");
}

}  // namespace lockstep
