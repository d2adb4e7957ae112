// SPDX-License-Identifier: Apache-2.0
#include "dist/bucket_plan.h"

#include <algorithm>

namespace lockstep {
namespace {

/// Returns the number of elements in about `bytes`: whole blocks, and at least one.
int64_t blocks_of(int64_t bytes) {
  return std::max<int64_t>(1, bytes / 4 / ParameterSpace::block) * ParameterSpace::block;
}

}  // namespace

BucketPlan::BucketPlan(int64_t trainable_elements, const Ownership& ownership)
    : elements(reserved + trainable_elements), owned(ownership.size()) {
  owned[0].push_back({0, reserved});
  for (size_t rank = 0; rank < ownership.size(); ++rank)
    for (const Range& range : ownership[rank])
      owned[rank].push_back({reserved + range.begin, reserved + range.end});
}

BucketPlan::BucketPlan(int64_t trainable_elements, const Ownership& ownership, int64_t bucket_bytes)
    : BucketPlan(trainable_elements, ownership) {
  cut(bucket_bytes);
}

BucketPlan::BucketPlan(const ParameterSpace& space, const Sharding& sharding, int64_t bucket_bytes)
    : BucketPlan(space.trainable_elements(), sharding.updates) {
  if (!sharding.cuts_gradients()) {
    cut(bucket_bytes);
    return;
  }
  units.push_back({0, reserved});
  for (const Range& unit : space.units())
    if (unit.begin < space.trainable_elements())
      units.push_back({reserved + unit.begin, reserved + unit.end});
  for (size_t unit = 0; unit < units.size(); ++unit)
    for (int64_t begin = units[unit].begin; begin < units[unit].end;) {
      const int64_t end = std::min(units[unit].end, begin + blocks_of(bucket_bytes));
      add({begin, end}, static_cast<int>(unit));
      begin = end;
    }
}

void BucketPlan::cut(int64_t bucket_bytes) {
  constexpr int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t begin = 0;
  do {
    const int64_t size = blocks_of(begin == 0 ? std::min(first_bucket_bytes, bucket_bytes) : bucket_bytes);
    const int64_t end = std::min(elements, (begin == 0 ? reserved : begin) + size);
    add({begin, end}, 0);
    begin = end;
  } while (begin < elements);
}

void BucketPlan::add(Range range, int unit) {
  Bucket bucket{.range = range, .unit = unit, .owned = Ownership(owned.size())};
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    // A binary search, because a plan of many ranks and units has many ranges.
    auto part =
        std::ranges::partition_point(owned[rank], [&](const Range& one) { return one.end <= range.begin; });
    for (; part != owned[rank].end() && part->begin < range.end; ++part)
      if (const Range both = intersection(*part, range); both.size() > 0) bucket.owned[rank].push_back(both);
  }
  buckets.push_back(std::move(bucket));
}

std::pair<int, int> BucketPlan::buckets_of(Range in_space) const {
  const auto bucket_at = [&](int64_t element) {
    return static_cast<int>(
               std::ranges::upper_bound(buckets, element, {}, [](const Bucket& b) { return b.range.begin; }) -
               buckets.begin()) -
           1;
  };
  const int first = bucket_at(reserved + in_space.begin);
  return {first, in_space.size() == 0 ? first : bucket_at(reserved + in_space.end - 1) + 1};
}

}  // namespace lockstep
