// SPDX-License-Identifier: Apache-2.0
#include "dist/replica_tree.h"

#include "core/error.h"
#include "kernels/fold.h"

namespace lockstep {
ReplicaRange replicas_of(int replicas, int ranks, int rank) {
  require(replicas >= ranks, "dist.replicas = ", replicas, " is fewer than the ", ranks,
          " ranks: start at most one rank per replica, or raise dist.replicas");
  const auto bound = [&](int r) { return static_cast<int>(int64_t{replicas} * r / ranks); };
  return {bound(rank), bound(rank + 1)};
}

int TreeFold::push(TreeNode node) {
  int additions = 0;
  for (;;) {
    const int64_t next_begin = (int64_t{node.index} + 1) << node.level;
    const bool is_root = node.index == 0 && next_begin >= replicas_;
    if (is_root) break;
    if (node.index % 2 == 0) {
      if (next_begin < replicas_) break;  // the right sibling is still to come
    } else {
      if (pending_.empty() || !(pending_.back() == TreeNode{node.level, node.index - 1})) break;
      pending_.pop_back();
      ++additions;
    }
    node = {node.level + 1, node.index / 2};
  }
  pending_.push_back(node);
  return additions;
}

std::vector<int> fold_program(int replicas, std::span<const TreeNode> nodes) {
  TreeFold fold(replicas);
  std::vector<int> program;
  for (size_t input = 0; input < nodes.size(); ++input) {
    program.push_back(static_cast<int>(input));
    program.insert(program.end(), static_cast<size_t>(fold.push(nodes[input])), Fold::add);
  }
  return program;
}

}  // namespace lockstep
