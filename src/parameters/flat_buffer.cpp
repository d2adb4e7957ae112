// SPDX-License-Identifier: Apache-2.0
#include "parameters/flat_buffer.h"

#include <algorithm>
#include <iterator>

#include "tensor/create.h"

namespace lockstep {

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

}  // namespace lockstep
