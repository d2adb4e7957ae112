// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/movement/sharding.h"
#include "lockstep/movement/transfer_plan.h"

namespace lockstep {

/// Returns the blocks of the norm that each rank sends. The exchange counts the blocks of rank 0, then those
/// of rank 1, and so on. So a rank's blocks are one range, although it owns a range of each unit.
Ownership blocks_by_owner(const Ownership& updates);
/// Returns the place of each block of the space in that order.
std::vector<int32_t> places_of_blocks(const Ownership& updates);

/// Returns a placement for each rank: the layout of a buffer that holds the rank's ranges one after another.
std::vector<Placement> places_of(const Ownership& ownership);

/// Returns the plan that gathers a range on each rank of a group. A group is `group` neighbouring ranks
/// that together have the range, and every rank is in one. Sources are placed as `places`, which is
/// places_of(owned). The target holds that range alone.
TransferPlan gather_of(const Ownership& owned, std::span<const Placement> places, Range range, int group,
                       int rank);

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
