// SPDX-License-Identifier: Apache-2.0
#include "dist/unit_pool.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/kernel.h"

namespace lockstep {

UnitPool::UnitPool(ParameterSpace& space, const Sharding& sharding, Movement& movement, int rank)
    : space_(space), movement_(movement) {
  std::vector<int64_t> sizes(buffer_count, 0);
  for (const Range& unit : space.units()) {
    transfers_.push_back(gather_of(sharding.reads, unit, sharding.group, rank));
    sizes.push_back(unit.size());
  }
  std::ranges::sort(sizes, std::greater());
  std::copy_n(sizes.begin(), buffer_count, sizes_.begin());
  space_.set_residency(this);
}

UnitPool::~UnitPool() { space_.set_residency(nullptr); }

void UnitPool::open() {
  if (std::exchange(is_open_, true)) return;
  is_settled_ = false;
}

void UnitPool::close() {
  if (!std::exchange(is_open_, false)) return;
  for (Buffer& buffer : buffers_) {
    buffer.unit = -1;
    buffer.used_at = -1;
    if (std::exchange(buffer.is_arriving, false)) buffer.arrived.hold(space_.stream());
  }
  last_order_ = std::exchange(order_, {});
}

UnitPool::Buffer* UnitPool::find_buffer(int unit, DType dtype) {
  for (Buffer& buffer : buffers_)
    if (buffer.unit == unit && buffer.dtype == dtype) return &buffer;
  return nullptr;
}

/// Of the buffers that are large enough and not about to be read, the one that was found longest ago; null if
/// there is none.
UnitPool::Buffer* UnitPool::buffer_for(int64_t elements) {
  if (!buffers_[0].memory) {  // all at once: a step that is recorded must find them made
    const MemoryScope scope("gathered values");
    for (size_t i = 0; i < buffer_count; ++i)
      buffers_[i].memory = Storage::make(sizes_[i] * bytes(space_.precision()), space_.stream());
  }
  Buffer* best = nullptr;
  for (size_t i = 0; i < buffer_count; ++i) {
    Buffer& buffer = buffers_[i];
    const bool is_needed = buffer.used_at >= 0 && buffer.launches == launches_of_this_thread();
    if (sizes_[i] < elements || is_needed) continue;
    if (best == nullptr || buffer.used_at < best->used_at) best = &buffer;
  }
  return best;
}

/// Brings a unit; null if there is no buffer for it.
UnitPool::Buffer* UnitPool::gather(int unit, DType dtype) {
  const Range range = space_.units()[static_cast<size_t>(unit)];
  const FlatBuffer& shard = space_.copies() ? space_.copies() : space_.values();
  expect(dtype == shard.dtype(), "units are gathered in ", shard.dtype(), ", not in ", dtype);
  Buffer* const found = buffer_for(range.size());
  if (found == nullptr) return nullptr;
  Buffer& buffer = *found;
  const View from = shard.memory().view();
  movement_.transfer({.pieces = transfers_[static_cast<size_t>(unit)],
                      .from = static_cast<const std::byte*>(from.data),
                      .from_bytes = from.bytes(),
                      .to = buffer.memory->data.get(),
                      .element_bytes = bytes(dtype),
                      .is_settled = is_settled_,
                      .is_lent = true});
  is_settled_ = true;
  buffer.unit = unit;
  buffer.dtype = dtype;
  buffer.used_at = finds_;
  buffer.is_arriving = device_of(movement_.stream()) == Device::cuda;
  if (buffer.is_arriving) buffer.arrived.record(movement_.stream());
  return found;
}

std::byte* UnitPool::find(Range place, DType dtype) {
  const int unit = space_.unit_of(place);
  Buffer* buffer = find_buffer(unit, dtype);
  if (buffer == nullptr) {
    expect(is_open_,
           "this rank keeps a part of the model, and gathers the rest only where all ranks run the "
           "same operations: call DataParallel::begin_step() first, on every rank");
    buffer = gather(unit, dtype);
    expect(buffer != nullptr, "an operation reads parameters of more than ", buffer_count,
           " units of the model at once, or of several of the largest, or their values are read without an "
           "operation between: mark them as one unit, or use DataParallel::gather_values()");
  }
  buffer->used_at = finds_++;
  buffer->launches = launches_of_this_thread();
  if (std::exchange(buffer->is_arriving, false)) buffer->arrived.hold(space_.stream());
  if (order_.empty() || order_.back() != Key{unit, dtype}) {
    order_.push_back({unit, dtype});
    // Ahead of the kernels that are to come, beside those that read this unit.
    const bool is_known =
        device_of(movement_.stream()) == Device::cuda && order_.size() < last_order_.size() &&
        std::equal(order_.end() - 1, order_.end(), last_order_.begin() + std::ssize(order_) - 1);
    if (const Key next = is_known ? last_order_[order_.size()] : Key{unit, dtype};
        find_buffer(next.unit, next.dtype) == nullptr)
      gather(next.unit, next.dtype);
  }
  const int64_t offset = place.begin - space_.units()[static_cast<size_t>(unit)].begin;
  return buffer->memory->data.get() + offset * bytes(dtype);
}

}  // namespace lockstep
