// SPDX-License-Identifier: Apache-2.0
#include "dist/replica_tree.h"

#include <cmath>
#include <gtest/gtest.h>

#include "core/error.h"
#include "kernels/fold.h"
#include "tests/dist/reference_tree.h"

namespace lockstep {
namespace {

std::vector<float> leaves_of(int replicas) {
  std::vector<float> leaves;
  for (int v = 0; v < replicas; ++v)
    leaves.push_back(std::ldexp(std::sin(1.0f + static_cast<float>(v)), (v * 7) % 23 - 11));
  return leaves;
}

/// The program over single numbers.
float fold_numbers(int replicas, const std::vector<TreeNode>& nodes, std::vector<float> values) {
  float sum = NAN;
  Fold kernel{
      .inputs = {}, .program = fold_program(replicas, nodes), .y = {&sum, {}, DType::f32}, .scale = 1.0f};
  for (float& value : values) kernel.inputs.push_back({&value, {}, DType::f32});
  launch(cpu_stream(), kernel);
  return sum;
}

float tree_sum(const std::vector<float>& leaves) {
  std::vector<TreeNode> nodes;
  for (size_t v = 0; v < leaves.size(); ++v) nodes.push_back({0, static_cast<int>(v)});
  return fold_numbers(static_cast<int>(leaves.size()), nodes, leaves);
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
      EXPECT_EQ(fold_numbers(replicas, nodes, values), reference_tree_sum(leaves))
          << replicas << " replicas on " << ranks << " ranks";
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

TEST(ReplicaTree, AProgramPushesAndAddsAsTheTreeDoes) {
  const TreeNode nodes[] = {{0, 0}, {0, 1}, {0, 2}};
  EXPECT_EQ(fold_program(3, nodes), (std::vector<int>{0, 1, Fold::add, 2, Fold::add}));
  const TreeNode half[] = {{0, 2}, {0, 3}, {0, 4}};
  EXPECT_EQ(fold_program(6, half), (std::vector<int>{0, 1, Fold::add, 2})) << "replica 5 is missing";
}

}  // namespace
}  // namespace lockstep
