// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Replicas [begin, end).
struct ReplicaRange {
  int begin = 0;
  int end = 0;

  int size() const { return end - begin; }
  bool operator==(const ReplicaRange&) const = default;
};

/// The replicas that `rank` of `ranks` executes: balanced contiguous ranges. Throws UserError if there are
/// fewer replicas than ranks.
ReplicaRange replicas_of(int replicas, int ranks, int rank);

/// Node (level, index) of the tree over V replicas covers replicas [index * 2^level, (index + 1) * 2^level)
/// below V. Its value is left + right in fp32; where the right child covers nothing, the left passes through.
struct TreeNode {
  int level = 0;
  int index = 0;

  bool operator==(const TreeNode&) const = default;
};

/// A binary counter over tree nodes: what has been pushed is kept as the largest nodes that lie wholly within
/// it.
class TreeFold {
 public:
  explicit TreeFold(int replicas) : replicas_(replicas) {}

  /// Pushes the node that follows all earlier ones and returns how many additions that makes possible.
  int push(TreeNode node);
  /// The nodes kept now, in the order of their replicas.
  const std::vector<TreeNode>& pending() const { return pending_; }

 private:
  int replicas_;
  std::vector<TreeNode> pending_;
};

/// The program (of kernels/fold.h) that folds `nodes`, adjacent and in the order of their replicas, as far as
/// the tree allows.
std::vector<int> fold_program(int replicas, std::span<const TreeNode> nodes);

}  // namespace lockstep
