// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/leaf_pool.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/kernels/elementwise.h"

namespace lockstep {

LeafPool::LeafPool(const ParameterLayout& layout, const BucketPlan& buckets, Allocate allocate)
    : allocate_(std::move(allocate)), stream_(layout.stream()), unsettled_(buckets.units.size()) {
  std::vector<Range> parameters;
  for (const Parameter& parameter : layout.parameters())
    parameters.push_back(BucketPlan::in_buffer(parameter.place));
  std::ranges::sort(parameters, {}, &Range::begin);
  for (const Range& unit : buckets.units) {
    UnitGradients& place = places_.emplace_back(UnitGradients{.elements = unit.size()});
    int64_t end = unit.begin;
    for (const Range& parameter : parameters)
      if (intersection(parameter, unit).size() > 0) {
        if (end < parameter.begin) place.gaps.push_back({end - unit.begin, parameter.begin - unit.begin});
        end = parameter.end;
      }
    if (end < unit.end) place.gaps.push_back({end - unit.begin, unit.end - unit.begin});
  }
}

/// Returns the smallest free buffer that is large enough, or a new one.
int LeafPool::settle(int64_t elements) {
  const auto bytes_of = [this](int buffer) { return buffers_[static_cast<size_t>(buffer)].memory->bytes; };
  int best = -1;
  for (int i = 0; i < static_cast<int>(buffers_.size()); ++i)
    if (!buffers_[static_cast<size_t>(i)].is_used && bytes_of(i) >= elements * 4 &&
        (best < 0 || bytes_of(i) < bytes_of(best)))
      best = i;
  if (best >= 0) return best;
  const MemoryScope scope("gradients");
  buffers_.emplace_back().memory = allocate_(elements);
  return static_cast<int>(buffers_.size()) - 1;
}

bool LeafPool::is_free(int unit) const {
  const UnitGradients& place = places_[static_cast<size_t>(unit)];
  return place.buffer < 0 || !buffers_[static_cast<size_t>(place.buffer)].is_used;
}

const Tensor& LeafPool::acquire(int unit) {
  UnitGradients& place = places_[static_cast<size_t>(unit)];
  if (place.buffer < 0) {
    place.buffer = settle(place.elements);
    --unsettled_;
  }
  Buffer& buffer = buffers_[static_cast<size_t>(place.buffer)];
  expect(!std::exchange(buffer.is_used, true),
         "this backward reaches the units of the model in another order than the first backward");
  if (std::exchange(buffer.was_read, false)) buffer.read.hold(stream_);
  place.gradients = Tensor(buffer.memory, 0, {place.elements}, DType::f32);
  for (const Range& gap : place.gaps)
    launch(stream_, Fill{.y = place.gradients.slice(gap.begin, gap.end).view()});
  return place.gradients;
}

void LeafPool::release(int unit, const Stream& reader) {
  UnitGradients& place = places_[static_cast<size_t>(unit)];
  if (!place.gradients) return;
  place.gradients = {};
  Buffer& buffer = buffers_[static_cast<size_t>(place.buffer)];
  buffer.is_used = false;
  if (device_of(reader) == Device::cpu) return;
  buffer.read.record(reader);
  buffer.was_read = true;
}

void LeafPool::release_all() {
  for (UnitGradients& place : places_) place.gradients = {};
  for (Buffer& buffer : buffers_) buffer.is_used = buffer.was_read = false;
}

}  // namespace lockstep
