// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "dist/transfer_plan.h"
#include "parameters/parameter_space.h"

namespace lockstep {

/// What ranks do not all keep: each stage cuts more than the one before (ZeRO 1, 2 and 3, Rajbhandari et al.
/// 2020). No bit depends on it.
enum class Shard {
  none,       ///< every rank keeps values and gradients
  optimizer,  ///< a rank keeps the optimizer's states of what it updates, and so the f32 values of a model in
              ///< 16 bits
  gradients,  ///< and of the gradients what it updates: they are handed over unit by unit
  full,       ///< and of the values a part, from which units are gathered when an operation reads them
};

const char* name(Shard shard);

/// What lies in the memory of the host while a model computes on a GPU (ZeRO-Offload, Ren et al. 2021). No
/// bit depends on it. On a CPU it is all one memory, and nothing changes.
enum class Offload {
  none,
  optimizer,  ///< the optimizer's states and the fp32 values, which are updated there
  all,        ///< and what operations read, from where units are brought when an operation reads them
};

const char* name(Offload offload);

/// The least stage that offloading is made of, and at least `stage`: also for one rank.
Shard stage_with(Shard stage, Offload offload);

/// Throws UserError for a group that does not divide the ranks, or where values are not cut, or not on GPUs.
void check_group(Shard stage, int ranks, int group, Offload offload = Offload::none);

/// Who keeps and who updates which elements of a space: a value, made from the space's units and precision,
/// the ranks and a stage.
struct Sharding {
  /// `group`: ranks that keep all values between them, neighbours in rank order; 0 is all ranks. Throws
  /// UserError as check_group() does. One rank shards nothing, unless it offloads.
  Sharding(const ParameterSpace& space, Shard stage, int ranks, int group, Offload offload = Offload::none);

  bool cuts_gradients() const { return stage == Shard::gradients || stage == Shard::full; }
  /// Whether what operations read is gathered unit by unit.
  bool cuts_reads() const { return stage == Shard::full; }

  Shard stage;
  int group;          ///< ranks that keep all values between them
  Ownership updates;  ///< [rank], of trainable elements: who has states and gradients, and makes new values
  Ownership masters;  ///< [rank], of all elements: whose f32 values a rank has
  Ownership reads;    ///< [rank], of all elements: of what operations read, the values or their copies
};

/// Where ranges lie that a rank has one after the other.
std::vector<Placement> places_of(const Ownership& ownership);

/// Brings a range to each of the `group` neighbours that have it between them, all ranks being in such a
/// group: from buffers placed as `places`, places_of(owned), to one of that range alone.
TransferPlan gather_of(const Ownership& owned, std::span<const Placement> places, Range range, int group,
                       int rank);

}  // namespace lockstep
