// SPDX-License-Identifier: Apache-2.0
#include "dist/replica_tree.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace lockstep {
namespace {

// Values of a fold live in blocks that stay in the first-level cache.
constexpr int64_t block_size = 1024;
using Block = std::array<float, block_size>;

// A factor of one changes no bits, so the inner nodes and the root share one loop.
void add_blocks(const float* left, const float* right, float* sum, int64_t count, float scale) {
  for (int64_t i = 0; i < count; ++i) sum[i] = (left[i] + right[i]) * scale;
}

void scale_block(const float* value, float* scaled, int64_t count, float scale) {
  for (int64_t i = 0; i < count; ++i) scaled[i] = value[i] * scale;
}

}  // namespace

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

std::vector<FoldStep> fold_program(int replicas, std::span<const TreeNode> nodes) {
  TreeFold fold(replicas);
  std::vector<FoldStep> program;
  for (size_t input = 0; input < nodes.size(); ++input) {
    program.push_back({static_cast<int>(input)});
    for (int additions = fold.push(nodes[input]); additions > 0; --additions)
      program.push_back({FoldStep::add});
  }
  return program;
}

void run_fold(std::span<const FoldStep> program, std::span<const float* const> inputs, float* out,
              int64_t count, float scale) {
  std::vector<Block> temporaries(inputs.size());
  std::vector<const float*> stack(inputs.size());
  for (int64_t begin = 0; begin < count; begin += block_size) {
    const int64_t length = std::min(block_size, count - begin);
    size_t depth = 0;
    for (size_t step = 0; step < program.size(); ++step) {
      if (program[step].input != FoldStep::add) {
        stack[depth++] = inputs[static_cast<size_t>(program[step].input)] + begin;
        continue;
      }
      --depth;
      const float* left = stack[depth - 1];
      float* sum = temporaries[depth - 1].data();
      const bool is_root = step + 1 == program.size();
      add_blocks(left, stack[depth], sum, length, is_root ? scale : 1.0f);
      stack[depth - 1] = sum;
    }
    expect(depth == 1, "a fold ends with one value, not ", depth);
    if (program.back().input != FoldStep::add) {
      scale_block(stack[0], temporaries[0].data(), length, scale);
      stack[0] = temporaries[0].data();
    }
    std::copy_n(stack[0], length, out + begin);
  }
}

float tree_sum(std::span<const float> values) {
  std::vector<TreeNode> leaves;
  std::vector<const float*> inputs;
  for (size_t v = 0; v < values.size(); ++v) {
    leaves.push_back({0, static_cast<int>(v)});
    inputs.push_back(&values[v]);
  }
  float sum = 0.0f;
  run_fold(fold_program(static_cast<int>(values.size()), leaves), inputs, &sum, 1, 1.0f);
  return sum;
}

}  // namespace lockstep
