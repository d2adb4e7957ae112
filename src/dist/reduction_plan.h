// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "dist/replica_tree.h"

namespace lockstep {

/// Where one rank keeps its replicas' gradients. Slots are a binary counter: a replica writes the slot above
/// those that are pending, and is then added to them as far as the tree allows.
struct SlotPlan {
  SlotPlan(int replicas, int ranks, int rank);

  ReplicaRange mine;           ///< the replicas of the rank
  std::vector<int> slot_of;    ///< by local replica: the slot that it writes
  std::vector<int> additions;  ///< by local replica: how many the tree allows after it
  int slots = 1;               ///< all that are ever used
  int pending = 0;             ///< slots 0 to pending - 1 hold something after all additions
};

/// The last fold of a step: the nodes that the ranks are left with, in the order of their replicas.
struct LastFold {
  /// `merged`: each rank has made all additions of its own; else those of its last replica are part of the
  /// fold.
  LastFold(int replicas, int ranks, bool merged);

  std::vector<int> inputs_of_rank;  ///< how many slots of each rank enter it
  std::vector<int> program;         ///< of kernels/fold.h, over those slots
};

}  // namespace lockstep
