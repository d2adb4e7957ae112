// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/distributed_values.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/memory.h"
#include "lockstep/kernels/kernel.h"
#include "lockstep/tensor/create.h"

namespace lockstep {

namespace detail {

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

}  // namespace detail

DistributedValues::DistributedValues(ParameterSpace& space, const Sharding& sharding, Offload offload,
                                     Communicator& communicator, GradientReducer& reducer)
    : space_(space), sharding_(sharding), communicator_(communicator), reducer_(reducer) {
  if (communicator.size() == 1 && offload == Offload::none) {
    space_.values();
    return;
  }
  const FlatBuffer masters = make_buffer(sharding_.masters, DType::f32, offload != Offload::none);
  fill_masters(masters);
  space_.values.place(masters);
  release_cached_memory(space_.layout.stream());  // frees the old memory of the values
  if (sharding_.cuts_reads())
    units_ = std::make_unique<detail::UnitPool>(space_, sharding_, reducer_.movement(), communicator_.rank());
  const std::vector<Placement> places = places_of(sharding_.reads);
  value_plan_.emplace(sharding_.updates, places, sharding_.reads, places, communicator_.rank());
  if (!space_.copies.exist()) return;
  const FlatBuffer copies = make_buffer(sharding_.reads, space_.precision(), offload == Offload::all);
  space_.copies.place(copies);
  if (sharding_.stage != Shard::none)
    copies_plan_.emplace(sharding_.masters, places, sharding_.reads, places, communicator_.rank());
  refresh_copies();
}

void DistributedValues::refresh_copies() {
  space_.copies.refresh();
  if (copies_plan_) send(space_.copies(), *copies_plan_);
}

/// Returns zeroed memory for this rank's part of the space. Other ranks can reach it, and it is equally large
/// on all ranks. `on_host`: pinned host memory, for this rank alone.
FlatBuffer DistributedValues::make_buffer(const Ownership& ownership, DType dtype, bool on_host) const {
  const MemoryScope scope("parameters");
  if (on_host) {
    const FlatBuffer pinned = FlatBuffer::make(
        Placement(ownership[static_cast<size_t>(communicator_.rank())]), dtype, cpu_stream(), true);
    fill(pinned.memory(), 0.0);
    return {pinned.memory(), pinned.placement(), true};
  }
  int64_t most = 0;
  for (const std::vector<Range>& ranges : ownership) most = std::max(most, size_of(ranges));
  const Placement placement(ownership[static_cast<size_t>(communicator_.rank())]);
  const bool is_part = std::ranges::adjacent_find(ownership, std::not_equal_to()) != ownership.end();
  const auto memory = reducer_.movement().allocate((most * bytes(dtype) + 3) / 4, false);
  return {Tensor(memory, 0, {placement.elements()}, dtype), placement, is_part};
}

void DistributedValues::fill_masters(const FlatBuffer& masters) const {
  if (masters.is_whole(space_.layout.elements())) {
    space_.values.write({0, space_.layout.elements()}, masters.memory());
    return broadcast(masters.memory());
  }
  // No rank ever has all values. Each rank makes its own, or receives them unit by unit.
  const std::string rules = space_.values.definition();
  const uint64_t hash = hash_of(rules);
  const std::vector<uint64_t> hashes = communicator_.all_gather_value(hash);
  if (!rules.empty() && std::ranges::count(hashes, hash) == std::ssize(hashes)) {
    for (const Range& range : masters.placement().ranges()) space_.values.write(range, masters.part(range));
    return;
  }
  for (const Range& unit : space_.layout.units()) {
    const Tensor values = empty({unit.size()}, DType::f32, space_.layout.stream());
    if (communicator_.rank() == 0) space_.values.write(unit, values);
    broadcast(values);
    for (const Range& kept : masters.placement().ranges())
      if (const Range both = intersection(kept, unit); both.size() > 0)
        copy(values.slice(both.begin - unit.begin, both.end - unit.begin), masters.part(both));
  }
}

/// Copies rank 0's elements to all ranks.
void DistributedValues::broadcast(const Tensor& tensor) const {
  constexpr int64_t piece_bytes = int64_t{64} << 20;
  auto* const values = static_cast<std::byte*>(tensor.view().data);
  const int64_t bytes = tensor.view().bytes();
  const Stream& stream = tensor.stream();
  if (mode_of(stream).is_dry) return;
  if (device_of(stream) == Device::cpu) return communicator_.broadcast(values, bytes, 0);
  const std::shared_ptr<std::byte> on_host = allocate_pinned(std::min(bytes, piece_bytes));
  for (int64_t begin = 0; begin < bytes; begin += piece_bytes) {
    const int64_t size = std::min(piece_bytes, bytes - begin);
    copy_bytes(on_host.get(), cpu_stream(), values + begin, stream, size);
    communicator_.broadcast(on_host.get(), size, 0);
    copy_bytes(values + begin, stream, on_host.get(), cpu_stream(), size);
  }
}

/// Sends elements of one buffer from the ranks that computed them to the ranks that keep them. Does nothing
/// if the buffer is on the host, where each rank computes the elements that it keeps.
void DistributedValues::send(const FlatBuffer& buffer, const TransferPlan& plan) const {
  if (device_of(buffer.memory().stream()) != device_of(space_.layout.stream())) return;
  const View view = buffer.memory().view();
  reducer_.transfer({.plan = plan, .from = view, .to = view, .is_lent = sharding_.stage != Shard::none});
}

/// Sends new values to all ranks that read them.
void DistributedValues::gather_updates() {
  if (communicator_.size() == 1) return;
  if (copies_plan_) return send(space_.copies(), *value_plan_);
  // With a single group, a rank gathers other ranks' values when it reads them.
  if (sharding_.cuts_reads() && sharding_.group == communicator_.size()) return;
  send(space_.values(), *value_plan_);
  if (space_.copies.exist()) space_.copies.refresh();
}

Tensor DistributedValues::gather(int unit) {
  const Range range = space_.layout.units()[static_cast<size_t>(unit)];
  const FlatBuffer& masters = space_.values();
  if (masters.is_whole(space_.layout.elements())) return masters.part(range);
  const TransferPlan plan =
      gather_of(sharding_.masters, places_of(sharding_.masters), range,
                space_.copies.exist() ? communicator_.size() : sharding_.group, communicator_.rank());
  if (!gathered_) {
    int64_t most = 0;
    for (const Range& one : space_.layout.units()) most = std::max(most, one.size());
    const MemoryScope scope("gathered values");
    const auto memory =
        reducer_.movement().allocate_arrivals(most * bytes(DType::f32), space_.layout.stream());
    gathered_ = Tensor(memory, 0, {most}, DType::f32);
  }
  reducer_.transfer({.plan = plan,
                     .from = masters.memory().view(),
                     .to = gathered_.view(),
                     .from_host = space_.values.are_offloaded(),
                     .is_lent = true});
  return gathered_.slice(0, range.size());
}

}  // namespace lockstep
