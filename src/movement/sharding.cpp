// SPDX-License-Identifier: Apache-2.0
#include "lockstep/movement/sharding.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

/// Returns the number of elements in about `bytes`: whole blocks, and at least one.
int64_t blocks_of(int64_t bytes) {
  return std::max<int64_t>(1, bytes / 4 / ParameterLayout::block) * ParameterLayout::block;
}

}  // namespace

const char* name(Shard shard) {
  constexpr const char* names[] = {"none", "optimizer", "gradients", "full", "hybrid"};
  return names[static_cast<size_t>(shard)];
}

const char* name(Offload offload) {
  constexpr const char* names[] = {"none", "optimizer", "all"};
  return names[static_cast<size_t>(offload)];
}

void resolve_hybrid(Shard& stage, int& group, int ranks_of_host) {
  if (stage != Shard::hybrid) return;
  stage = Shard::full;
  if (group == 0) group = ranks_of_host;
}

Shard stage_with(Shard stage, Offload offload) {
  if (offload == Offload::all) return Shard::full;
  return offload == Offload::optimizer ? std::max(stage, Shard::optimizer) : stage;
}

void check_group(Shard stage, int ranks, int group, Offload offload) {
  if (ranks == 1) return;
  const std::string of_group = concat(option_name("group"), " = ", group), shard = option_name("shard");
  require(group >= 0 && (group == 0 || ranks % group == 0), of_group, " does not divide the ", ranks,
          " ranks: each group keeps the whole model, so all groups must have equal size");
  require(group == 0 || group == ranks || stage == Shard::full, of_group, " needs ", shard, " = full: with ",
          shard, " = ", name(stage), " every rank keeps all values");
  require(group == 0 || group == ranks || offload != Offload::all, of_group,
          " keeps values on the GPUs of each group, and ", option_name("offload"),
          " = all keeps them in host memory: remove one of them");
}

Sharding::Sharding(const ParameterSpace& space, Shard of_stage, int ranks, int group_size, Offload offload)
    : stage(stage_with(ranks == 1 ? Shard::none : of_stage, offload)),
      group(ranks == 1 || group_size == 0 ? ranks : group_size) {
  check_group(of_stage, ranks, group_size, offload);
  // Owned ranges nest. A rank reads the ranges of `parts` ranks, one of each group.
  const int parts = stage == Shard::full ? ranks / group : 1;
  const auto index_of = [&](int rank) {
    return static_cast<size_t>(parts == 1 ? rank : rank % group * parts + rank / group);
  };
  const Ownership trainable = space.layout.owned_ranges(ranks), all = space.layout.owned_ranges(ranks, true);
  const Ownership of_group = space.layout.owned_ranges(group, true);
  const bool has_copies = space.copies.exist();
  for (int rank = 0; rank < ranks; ++rank) {
    updates.push_back(trainable[index_of(rank)]);
    reads.push_back(stage == Shard::full ? of_group[static_cast<size_t>(rank % group)]
                                         : std::vector<Range>{{0, space.layout.elements()}});
    masters.push_back(has_copies && stage != Shard::none ? all[index_of(rank)] : reads.back());
  }
}

Ownership blocks_by_owner(const Ownership& updates) {
  Ownership owned;
  int64_t end = 0;
  for (const std::vector<Range>& ranges : updates) {
    const int64_t begin = std::exchange(end, end + size_of(ranges) / ParameterLayout::block);
    owned.push_back({{begin, end}});
  }
  return owned;
}

std::vector<int32_t> places_of_blocks(const Ownership& updates) {
  constexpr int64_t block = ParameterLayout::block;
  const int64_t blocks = blocks_by_owner(updates).back()[0].end;
  expect(blocks <= std::numeric_limits<int32_t>::max(), blocks, " blocks of gradients exceed 32 bits");
  std::vector<int32_t> places(static_cast<size_t>(blocks));
  int32_t place = 0;
  for (const std::vector<Range>& ranges : updates)
    for (const Range& range : ranges)
      for (int64_t i = range.begin / block; i < range.end / block; ++i)
        places[static_cast<size_t>(i)] = place++;
  return places;
}

std::vector<Placement> places_of(const Ownership& ownership) { return {ownership.begin(), ownership.end()}; }

TransferPlan gather_of(const Ownership& owned, std::span<const Placement> places, Range range, int group,
                       int rank) {
  Ownership of_group(owned.size()), wanted(owned.size());
  for (size_t peer = 0; peer < owned.size(); ++peer) {
    if (static_cast<int>(peer) / group != rank / group) continue;
    of_group[peer] = owned[peer];
    wanted[peer] = {range};
  }
  return {of_group, places, wanted, std::vector<Placement>(owned.size(), Placement({range})), rank};
}

BucketPlan::BucketPlan(const ParameterLayout& layout, const Sharding& sharding, int64_t bucket_bytes)
    : elements(reserved + layout.trainable_elements()), owned(sharding.updates.size()) {
  constexpr int64_t first_bucket_bytes = int64_t{1} << 20;
  const int64_t size = blocks_of(bucket_bytes);
  owned[0].push_back({0, reserved});
  for (size_t rank = 0; rank < owned.size(); ++rank)
    for (const Range& range : sharding.updates[rank]) owned[rank].push_back(in_buffer(range));
  if (!sharding.cuts_gradients()) {
    const int64_t first = std::min(elements, reserved + std::min(blocks_of(first_bucket_bytes), size));
    cut({0, first}, first, 0);
    cut({first, elements}, size, 0);
    return;
  }
  units.push_back({0, reserved});
  for (const Range& unit : layout.units())
    if (unit.begin < layout.trainable_elements()) units.push_back(in_buffer(unit));
  for (size_t unit = 0; unit < units.size(); ++unit) cut(units[unit], size, static_cast<int>(unit));
}

/// Adds the buckets of a range of one unit.
void BucketPlan::cut(Range range, int64_t most_elements, int unit) {
  while (range.size() > 0) {
    const Range next{range.begin, std::min(range.end, range.begin + most_elements)};
    Bucket bucket{.range = next, .unit = unit, .owned = Ownership(owned.size())};
    for (size_t rank = 0; rank < owned.size(); ++rank) {
      // A binary search, because a plan of many ranks and units has many ranges.
      auto part =
          std::ranges::partition_point(owned[rank], [&](const Range& one) { return one.end <= next.begin; });
      for (; part != owned[rank].end() && part->begin < next.end; ++part)
        if (const Range both = intersection(*part, next); both.size() > 0) bucket.owned[rank].push_back(both);
    }
    buckets.push_back(std::move(bucket));
    range.begin = next.end;
  }
}

std::pair<int, int> BucketPlan::buckets_of(Range in_space) const {
  const auto bucket_at = [&](int64_t element) {
    const auto begin_of = [](const Bucket& bucket) { return bucket.range.begin; };
    const auto after = std::ranges::upper_bound(buckets, element, {}, begin_of);
    return static_cast<int>(after - buckets.begin()) - 1;
  };
  const int first = bucket_at(reserved + in_space.begin);
  return {first, in_space.size() == 0 ? first : bucket_at(reserved + in_space.end - 1) + 1};
}

}  // namespace lockstep
