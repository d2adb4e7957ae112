// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/distributed_values.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/memory.h"
#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/dist/unit_pool.h"
#include "lockstep/kernels/kernel.h"
#include "lockstep/tensor/create.h"

namespace lockstep {

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
    units_ = std::make_unique<UnitPool>(space_, sharding_, reducer_.movement(), communicator_.rank());
  const std::vector<Placement> places = places_of(sharding_.reads);
  value_plan_ = std::make_unique<TransferPlan>(sharding_.updates, places, sharding_.reads, places,
                                               communicator_.rank());
  if (!space_.copies.exist()) return;
  const FlatBuffer copies = make_buffer(sharding_.reads, space_.precision(), offload == Offload::all);
  space_.copies.place(copies);
  if (sharding_.stage != Shard::none)
    copies_plan_ = std::make_unique<TransferPlan>(sharding_.masters, places, sharding_.reads, places,
                                                  communicator_.rank());
  refresh_copies();
}

DistributedValues::~DistributedValues() = default;

void DistributedValues::open() {
  if (units_) units_->open();
}

void DistributedValues::close() {
  if (units_) units_->close();
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
