// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/movement/transfer_plan.h"
#include "lockstep/parameters/parameter_space.h"

namespace lockstep {

/// Sharding stages. Each divides more data between ranks than the one before (ZeRO 1, 2 and 3, Rajbhandari et
/// al. 2020). The bits do not depend on the stage.
enum class Shard {
  none,       ///< every rank keeps values and gradients
  optimizer,  ///< a rank keeps optimizer states, and f32 values of a 16-bit model, only for its owned ranges
  gradients,  ///< like `optimizer`, and gradients only for its owned ranges; they are sent unit by unit
  full,    ///< like `gradients`, and only a part of the values; a unit is gathered when an operation reads it
  hybrid,  ///< `full` in groups of the ranks of a host (PyTorch's HYBRID_SHARD); see resolve_hybrid()
};

const char* name(Shard shard);

/// Data that is stored in host memory while a model computes on a GPU (ZeRO-Offload, Ren et al. 2021). The
/// bits do not depend on it. It changes nothing on a CPU, which has only one memory.
enum class Offload {
  none,
  optimizer,  ///< the optimizer's states and the fp32 values, which are updated on the host
  all,  ///< like `optimizer`, and the values that operations read; a unit is copied when an operation reads
        ///< it
};

const char* name(Offload offload);

/// Replaces Shard::hybrid by Shard::full, with a group of `ranks_of_host` ranks unless one is given.
void resolve_hybrid(Shard& stage, int& group, int ranks_of_host);

/// Returns the lowest stage that includes `stage` and everything that `offload` needs, also for one rank.
Shard stage_with(Shard stage, Offload offload);

/// Throws UserError if the group size does not divide the ranks. Throws UserError for a group of fewer than
/// all ranks, if values are not sharded or if they are stored in host memory by Offload::all.
void check_group(Shard stage, int ranks, int group, Offload offload = Offload::none);

/// The elements of a space that each rank keeps and updates. A plain value, made from the space's units and
/// precision, the ranks and a stage.
struct Sharding {
  /// `group`: the number of neighbouring ranks that together keep all values; 0: all ranks. Throws UserError
  /// like check_group(). One rank shards nothing, unless it offloads.
  Sharding(const ParameterSpace& space, Shard stage, int ranks, int group, Offload offload = Offload::none);

  bool cuts_gradients() const { return stage == Shard::gradients || stage == Shard::full; }
  /// Returns whether the values that operations read are gathered unit by unit.
  bool cuts_reads() const { return stage == Shard::full; }

  Shard stage;
  int group;          ///< number of ranks that together keep all values
  Ownership updates;  ///< [rank], trainable elements that it updates, with their states and gradients
  Ownership masters;  ///< [rank], of all elements: those with an f32 value on the rank
  Ownership reads;    ///< [rank], of all elements: those that it keeps for operations, as values or copies
};

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
