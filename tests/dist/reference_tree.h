// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace lockstep {

/// Computes a node of the tree by its definition, independently of the engine. Node (level, index) over V
/// leaves is `left` + `right`, or `left` if the right child covers nothing.
inline float reference_node(const std::vector<float>& leaves, int level, int index) {
  if (level == 0) return leaves[static_cast<size_t>(index)];
  const int middle = (2 * index + 1) << (level - 1);
  const float left = reference_node(leaves, level - 1, 2 * index);
  if (middle >= static_cast<int>(leaves.size())) return left;
  return left + reference_node(leaves, level - 1, 2 * index + 1);
}

inline float reference_tree_sum(const std::vector<float>& leaves) {
  int level = 0;
  while ((1 << level) < static_cast<int>(leaves.size())) ++level;
  return reference_node(leaves, level, 0);
}

}  // namespace lockstep
