// SPDX-License-Identifier: Apache-2.0
#include "dist/replica_tree.h"

#include <cmath>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/dist/reference_tree.h"

namespace lockstep {
namespace {

std::vector<float> leaves_of(int replicas) {
  std::vector<float> leaves;
  for (int v = 0; v < replicas; ++v)
    leaves.push_back(std::ldexp(std::sin(1.0f + static_cast<float>(v)), (v * 7) % 23 - 11));
  return leaves;
}

TEST(ReplicaTree, SumsAsDefinedForEveryNumberOfReplicas) {
  for (int replicas = 1; replicas <= 70; ++replicas) {
    const std::vector<float> leaves = leaves_of(replicas);
    EXPECT_EQ(tree_sum(leaves), reference_tree_sum(leaves)) << replicas << " replicas";
  }
}

TEST(ReplicaTree, DiffersFromASumFromLeftToRight) {
  const std::vector<float> leaves = leaves_of(12);
  float left_to_right = 0.0f;
  for (float leaf : leaves) left_to_right += leaf;
  EXPECT_NE(tree_sum(leaves), left_to_right) << "these leaves cannot tell the orders apart";
}

TEST(ReplicaTree, FoldingEveryRanksPartialsGivesTheRoot) {
  for (int replicas = 1; replicas <= 33; ++replicas)
    for (int ranks = 1; ranks <= replicas; ++ranks) {
      const std::vector<float> leaves = leaves_of(replicas);
      std::vector<TreeNode> nodes;
      for (int rank = 0; rank < ranks; ++rank) {
        TreeFold fold(replicas);
        const ReplicaRange range = replicas_of(replicas, ranks, rank);
        for (int v = range.begin; v < range.end; ++v) fold.push({0, v});
        nodes.insert(nodes.end(), fold.pending().begin(), fold.pending().end());
      }
      std::vector<float> values;
      for (const TreeNode& node : nodes) values.push_back(reference_node(leaves, node.level, node.index));
      std::vector<const float*> inputs;
      for (const float& value : values) inputs.push_back(&value);
      float sum = 0.0f;
      run_fold(fold_program(replicas, nodes), inputs, &sum, 1, 1.0f);
      EXPECT_EQ(sum, reference_tree_sum(leaves)) << replicas << " replicas on " << ranks << " ranks";
    }
}

TEST(ReplicaTree, AnAlignedRankKeepsOneNode) {
  TreeFold fold(16);
  for (int v = 8; v < 12; ++v) fold.push({0, v});
  ASSERT_EQ(fold.pending().size(), 1u);
  EXPECT_EQ(fold.pending()[0], (TreeNode{2, 2}));
}

TEST(ReplicaTree, RangesCoverAllReplicasAndDifferByOneAtMost) {
  for (int replicas = 1; replicas <= 20; ++replicas)
    for (int ranks = 1; ranks <= replicas; ++ranks) {
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ReplicaRange range = replicas_of(replicas, ranks, rank);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), replicas / ranks);
        EXPECT_LE(range.size(), replicas / ranks + 1);
        next = range.end;
      }
      EXPECT_EQ(next, replicas);
    }
}

TEST(ReplicaTree, FewerReplicasThanRanksAreRefusedByName) {
  try {
    replicas_of(2, 3, 0);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("dist.replicas = 2"), std::string::npos) << error.what();
  }
}

TEST(ReplicaTree, TheRootIsScaledOnceAndMayReplaceAnInput) {
  std::vector<float> a(3000), b(3000), c(3000);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = std::sin(static_cast<float>(i));
    b[i] = 1e3f * std::cos(static_cast<float>(i));
    c[i] = 1e-3f * static_cast<float>(i);
  }
  const std::vector<float> left = a;
  const float* inputs[] = {a.data(), b.data(), c.data()};
  const TreeNode nodes[] = {{0, 0}, {0, 1}, {0, 2}};
  run_fold(fold_program(3, nodes), inputs, a.data(), 3000, 1.0f / 3.0f);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], ((left[i] + b[i]) + c[i]) * (1.0f / 3.0f)) << i;
}

}  // namespace
}  // namespace lockstep
