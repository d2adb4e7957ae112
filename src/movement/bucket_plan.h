// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "movement/sharding.h"

namespace lockstep {

/// The layout of a gradient buffer and its buckets. The first `reserved` elements hold other numbers that are
/// averaged like gradients, such as the loss. Rank 0 owns them. The trainable elements of a space follow. A
/// bucket consists of whole blocks of 4096 elements that are sent together. It may cut a parameter. Ownership
/// does not depend on buckets.
struct BucketPlan {
  static constexpr int64_t reserved = 64;

  struct Bucket {
    Range range;
    int unit = 0;     ///< index in `units`, if gradients are stored unit by unit
    Ownership owned;  ///< the ranges of this bucket that each rank owns
  };

  BucketPlan() = default;
  /// Cuts buckets of about `bucket_bytes`. The first has at most about 1 MiB so that communication starts
  /// early. If gradients are sharded, each bucket is cut from one unit, and unit 0 is the reserved elements.
  BucketPlan(const ParameterLayout& layout, const Sharding& sharding, int64_t bucket_bytes);

  /// Returns the elements of the buffer for a range of the space.
  static constexpr Range in_buffer(Range in_space) {
    return {reserved + in_space.begin, reserved + in_space.end};
  }
  /// Returns the buckets [first, second) that overlap this range of the space.
  std::pair<int, int> buckets_of(Range in_space) const;

  int64_t elements = 0;         ///< including the reserved ones
  Ownership owned;              ///< [rank], ranges of these elements
  std::vector<Bucket> buckets;  ///< in order, without gaps; at least one
  std::vector<Range> units;     ///< empty unless gradients are stored unit by unit

 private:
  void cut(Range range, int64_t most_elements, int unit);
};

}  // namespace lockstep
