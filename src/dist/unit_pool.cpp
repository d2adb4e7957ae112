// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/unit_pool.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/kernels/kernel.h"

namespace lockstep {

UnitPool::UnitPool(ParameterSpace& space, const Sharding& sharding, Movement& movement, int rank)
    : space_(space), movement_(movement) {
  const std::vector<Placement> shards = places_of(sharding.reads);
  std::vector<int64_t> sizes(buffer_count, 0);
  for (const Range& unit : space.layout.units()) {
    transfers_.push_back(gather_of(sharding.reads, shards, unit, sharding.group, rank));
    sizes.push_back(unit.size());
  }
  std::ranges::sort(sizes, std::greater());
  for (size_t i = 0; i < buffer_count; ++i) buffers_[i].elements = sizes[i];
  space_.values.set_residency([this](Range place, DType dtype) { return find(place, dtype); });
}

UnitPool::~UnitPool() { space_.values.set_residency(nullptr); }

void UnitPool::close() {
  if (!std::exchange(is_open_, false)) return;
  last_order_ = std::exchange(order_, {});
  for (Buffer& buffer : buffers_) buffer.unit = -1;  // first, because hold() may throw
  for (Buffer& buffer : buffers_) {
    buffer.used_at = -1;
    if (std::exchange(buffer.is_arriving, false)) buffer.arrived.hold(space_.layout.stream());
  }
}

UnitPool::Buffer* UnitPool::find_buffer(int unit) {
  const auto found = std::ranges::find(buffers_, unit, &Buffer::unit);
  return found == buffers_.end() ? nullptr : &*found;
}

/// Returns a buffer for a unit of this size. Returns null if all that are large enough are about to be read.
UnitPool::Buffer* UnitPool::buffer_for(int64_t elements) {
  if (!buffers_[0].memory) {  // all at once, because a recorded step must find them allocated
    const MemoryScope scope("gathered values");
    for (Buffer& buffer : buffers_)
      buffer.memory =
          movement_.allocate_arrivals(buffer.elements * bytes(space_.precision()), space_.layout.stream());
  }
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    const bool is_needed = buffer.used_at >= 0 && buffer.launches == launches_of_this_thread();
    if (buffer.elements < elements || is_needed) continue;
    if (best == nullptr ||
        std::pair(buffer.elements, buffer.used_at) < std::pair(best->elements, best->used_at))
      best = &buffer;
  }
  return best;
}

/// Gathers a unit. Returns null if there is no buffer for it.
UnitPool::Buffer* UnitPool::gather(int unit) {
  Buffer* const buffer = buffer_for(space_.layout.units()[static_cast<size_t>(unit)].size());
  if (buffer == nullptr) return nullptr;
  const Tensor& memory = (space_.copies.exist() ? space_.copies() : space_.values()).memory();
  movement_.transfer({.plan = transfers_[static_cast<size_t>(unit)],
                      .from = memory.view(),
                      .to = {buffer->memory->data.get(), {buffer->elements}, memory.dtype()},
                      .is_settled = is_settled_,
                      .from_host = device_of(memory.stream()) != device_of(space_.layout.stream()),
                      .is_lent = true});
  is_settled_ = true;
  buffer->unit = unit;
  buffer->used_at = finds_;
  buffer->is_arriving = device_of(movement_.arrivals()) == Device::cuda;
  if (buffer->is_arriving) buffer->arrived.record(movement_.arrivals());
  return buffer;
}

/// Gathers the unit that followed this one in the last pass, if copies run concurrently with kernels.
void UnitPool::gather_ahead(int unit) {
  if (!order_.empty() && order_.back() == unit) return;
  const size_t place = order_.size();
  order_.push_back(unit);
  const bool is_known = place + 1 < last_order_.size() && last_order_[place] == unit;
  if (!is_known || device_of(movement_.arrivals()) == Device::cpu) return;
  if (const int next = last_order_[place + 1]; find_buffer(next) == nullptr) gather(next);
}

std::byte* UnitPool::find(Range place, DType dtype) {
  const int unit = space_.layout.unit_of(place);
  Buffer* buffer = find_buffer(unit);
  if (buffer == nullptr) {
    expect(is_open_,
           "this rank keeps a part of the model, and gathers the rest only while all ranks run the "
           "same operations: call DataParallel::begin_step() first, on every rank");
    buffer = gather(unit);
    expect(buffer != nullptr, "an operation reads parameters of more than ", buffer_count,
           " units of the model at once, or of several of the largest, or no kernel ran between the reads: "
           "join them "
           "with a UnitRule, or use DataParallel::values.gather()");
  }
  buffer->used_at = finds_++;
  buffer->launches = launches_of_this_thread();
  if (std::exchange(buffer->is_arriving, false)) buffer->arrived.hold(space_.layout.stream());
  gather_ahead(unit);
  const int64_t offset = place.begin - space_.layout.units()[static_cast<size_t>(unit)].begin;
  return buffer->memory->data.get() + offset * bytes(dtype);
}

}  // namespace lockstep
