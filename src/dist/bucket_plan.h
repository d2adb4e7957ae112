// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "dist/sharding.h"

namespace lockstep {

/// How gradients are cut to travel. They begin with `reserved` elements for what is averaged as gradients are
/// and is none, which rank 0 finishes; then come the trainable elements of a space. Buckets are what travels
/// at once, whole blocks of 4096 elements. They may cut parameters; who owns what does not depend on them.
struct BucketPlan {
  static constexpr int64_t reserved = 64;

  struct Bucket {
    Range range;
    int unit = 0;     ///< that it is a part of, where gradients lie unit by unit
    Ownership owned;  ///< parts of the range
  };

  /// About `bucket_bytes` each, the first about 1 MiB, so that communication starts early. `ownership`: what
  /// each rank owns of the space.
  BucketPlan(int64_t trainable_elements, const Ownership& ownership, int64_t bucket_bytes);
  /// The same, or, where gradients are cut, of at most that much of one unit; unit 0 is the reserved
  /// elements.
  BucketPlan(const ParameterSpace& space, const Sharding& sharding, int64_t bucket_bytes);

  /// The buckets [first, second) that meet this range of the space.
  std::pair<int, int> buckets_of(Range in_space) const;

  int64_t elements;             ///< reserved ones too
  Ownership owned;              ///< of these
  std::vector<Bucket> buckets;  ///< in order, without gaps; at least one
  std::vector<Range> units;     ///< where gradients lie unit by unit, else empty

 private:
  BucketPlan(int64_t trainable_elements, const Ownership& ownership);
  void cut(int64_t bucket_bytes);
  void add(Range range, int unit);
};

}  // namespace lockstep
