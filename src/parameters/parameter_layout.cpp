// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/parameter_layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "lockstep/tensor/create.h"
#include "lockstep/tensor/tensor_state.h"

namespace lockstep {
namespace {

constexpr int64_t parameter_alignment = 16;

int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

/// Returns the name of the parameter's unit: its name up to the first number, or the name of its module.
std::string name_of_unit(const Parameter& parameter, const ParameterLayout::UnitRule& rule) {
  const std::string& name = parameter.name;
  if (!parameter.other_names.empty()) return name;
  if (rule) return rule(name);
  for (size_t begin = 0, end = 0; (end = name.find('.', begin)) != std::string::npos; begin = end + 1)
    if (name.find_first_not_of("0123456789", begin) == end) return name.substr(0, end);
  return name.substr(0, name.rfind('.'));
}

}  // namespace

int64_t size_of(const std::vector<Range>& ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

Placement::Placement(const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    if (range.size() == 0) continue;
    expect(ranges_.empty() || ranges_.back().end <= range.begin, "ranges of a placement are out of order");
    if (!ranges_.empty() && ranges_.back().end == range.begin) {
      ranges_.back().end = range.end;
    } else {
      offsets_.push_back(elements());
      ranges_.push_back(range);
    }
  }
}

int64_t Placement::offset_of(Range range) const {
  if (range.size() == 0) return 0;
  const auto after = std::ranges::upper_bound(ranges_, range.begin, {}, &Range::begin);
  expect(after != ranges_.begin() && range.end <= std::prev(after)->end, "elements [", range.begin, ", ",
         range.end, ") are not in this rank's part, whose size is ", elements());
  const auto i = static_cast<size_t>(after - ranges_.begin() - 1);
  return offsets_[i] + range.begin - ranges_[i].begin;
}

FlatBuffer::FlatBuffer(Tensor memory, Placement placement, bool is_part)
    : memory_(std::move(memory)), placement_(std::move(placement)), is_part_(is_part) {
  expect(memory_.size() == placement_.elements(), "a buffer of ", memory_.shape(), " for ",
         placement_.elements(), " elements");
}

FlatBuffer FlatBuffer::make(const Placement& placement, DType dtype, const Stream& stream, bool pinned) {
  const int64_t elements = placement.elements();
  if (!pinned) return {empty({elements}, dtype, stream), placement};
  const int64_t size = elements * bytes(dtype);
  const auto memory = std::make_shared<Storage>(Storage{allocate_pinned(size), size, stream});
  return {Tensor(memory, 0, {elements}, dtype), placement};
}

View FlatBuffer::view(Range range) const {
  if (!memory_) return {};
  auto* const first = static_cast<std::byte*>(memory_.view().data);
  return {first + placement_.offset_of(range) * bytes(dtype()), {range.size()}, dtype()};
}

Tensor FlatBuffer::part(Range range) const {
  const int64_t offset = placement_.offset_of(range);
  return memory_.slice(offset, offset + range.size());
}

ParameterGroup matrices_decay(const std::string&, const Tensor& tensor) {
  return {.decays = tensor.shape().rank() >= 2};
}

ParameterLayout::ParameterLayout(const std::vector<NamedTensor>& listed, const GroupRule& group,
                                 const UnitRule& unit) {
  for (const NamedTensor& one : listed) add(one, group);
  lay_out(unit);
  dtype_ = parameters_.empty() ? DType::f32 : parameters_.front().tensor.dtype();
  stream_ = parameters_.empty() ? current_stream() : parameters_.front().tensor.stream();
}

void ParameterLayout::add(const NamedTensor& listed, const GroupRule& group) {
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

void ParameterLayout::lay_out(const UnitRule& rule) {
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

int ParameterLayout::unit_of(Range place) const {
  const auto after = std::ranges::upper_bound(units_, place.begin, {}, &Range::begin);
  return static_cast<int>(after - units_.begin()) - 1;
}

Ownership ParameterLayout::owned_ranges(int ranks, bool frozen_too) const {
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

std::vector<ParameterLayout::GroupRange> ParameterLayout::by_group(std::span<const Range> ranges) const {
  std::vector<GroupRange> cut;
  for (const Range& range : ranges)
    for (const GroupRange& part : groups_)
      if (const Range both = intersection(range, part.range); both.size() > 0)
        cut.push_back({both, part.group});
  return cut;
}

}  // namespace lockstep
