// SPDX-License-Identifier: Apache-2.0
#include "dist/reduction_plan.h"

#include <algorithm>

namespace lockstep {

SlotPlan::SlotPlan(int replicas, int ranks, int rank) : mine(replicas_of(replicas, ranks, rank)) {
  TreeFold fold(replicas);
  for (int v = mine.begin; v < mine.end; ++v) {
    slot_of.push_back(static_cast<int>(fold.pending().size()));
    slots = std::max(slots, slot_of.back() + 1);
    additions.push_back(fold.push({0, v}));
  }
  pending = static_cast<int>(fold.pending().size());
}

LastFold::LastFold(int replicas, int ranks, bool merged) {
  std::vector<TreeNode> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    const ReplicaRange theirs = replicas_of(replicas, ranks, rank);
    TreeFold fold(replicas);
    for (int v = theirs.begin; v + 1 < theirs.end; ++v) fold.push({0, v});
    std::vector<TreeNode> left = fold.pending();
    left.push_back({0, theirs.end - 1});
    if (merged) {
      fold.push(left.back());
      left = fold.pending();
    }
    inputs_of_rank.push_back(static_cast<int>(left.size()));
    nodes.insert(nodes.end(), left.begin(), left.end());
  }
  program = fold_program(replicas, nodes);
}

}  // namespace lockstep
