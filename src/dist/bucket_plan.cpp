// SPDX-License-Identifier: Apache-2.0
#include "dist/bucket_plan.h"

#include <algorithm>

namespace lockstep {

BucketPlan::BucketPlan(const ParameterSpace& space, int ranks, int64_t bucket_bytes)
    : BucketPlan(space.trainable_elements(), space.segments(ranks), bucket_bytes) {}

BucketPlan::BucketPlan(int64_t trainable_elements, const Ownership& segments, int64_t bucket_bytes)
    : elements(reserved + trainable_elements), owned(segments.size()) {
  owned[0].push_back({0, reserved});
  for (size_t rank = 0; rank < segments.size(); ++rank)
    for (const Range& range : segments[rank])
      owned[rank].push_back({reserved + range.begin, reserved + range.end});

  constexpr int64_t block = ParameterSpace::block, first_bucket_bytes = int64_t{1} << 20;
  int64_t begin = 0;
  do {
    const int64_t bytes = begin == 0 ? std::min(first_bucket_bytes, bucket_bytes) : bucket_bytes;
    const int64_t size = std::max<int64_t>(1, bytes / 4 / block) * block;
    const int64_t end = std::min(elements, (begin == 0 ? reserved : begin) + size);
    Bucket bucket{.range = {begin, end}, .owned = Ownership(owned.size())};
    for (size_t rank = 0; rank < owned.size(); ++rank)
      for (const Range& range : owned[rank])
        if (const Range both = intersection(range, bucket.range); both.size() > 0)
          bucket.owned[rank].push_back(both);
    buckets.push_back(std::move(bucket));
    begin = end;
  } while (begin < elements);
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
