// SPDX-License-Identifier: Apache-2.0
#pragma once

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

namespace detail {

/// Replaces Shard::hybrid by Shard::full, with a group of `ranks_of_host` ranks unless one is given.
void resolve_hybrid(Shard& stage, int& group, int ranks_of_host);

/// Returns the lowest stage that includes `stage` and everything that `offload` needs, also for one rank.
Shard stage_with(Shard stage, Offload offload);

/// Throws UserError if the group size does not divide the ranks. Throws UserError for a group of fewer than
/// all ranks, if values are not sharded or if they are stored in host memory by Offload::all.
void check_group(Shard stage, int ranks, int group, Offload offload = Offload::none);

}  // namespace detail

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

}  // namespace lockstep
