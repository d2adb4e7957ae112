// SPDX-License-Identifier: Apache-2.0
#include "lockstep/movement/bucket_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// Returns the number of elements in about `bytes`: whole blocks, and at least one.
int64_t blocks_of(int64_t bytes) {
  return std::max<int64_t>(1, bytes / 4 / ParameterLayout::block) * ParameterLayout::block;
}

}  // namespace

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
