// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/fold.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

/// Appends the program of the tree over leaves [begin, end). Both halves precede their addition.
void append_tree(int begin, int end, std::vector<int>& program) {
  if (end - begin == 1) return program.push_back(begin);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  append_tree(begin, begin + half, program);
  append_tree(begin + half, end, program);
  program.push_back(Fold::add);
}

float tree_sum(const std::vector<Values>& inputs, int64_t i, int begin, int end) {
  if (end - begin == 1) return static_cast<float>(inputs[static_cast<size_t>(begin)][i]);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree_sum(inputs, i, begin, begin + half) + tree_sum(inputs, i, begin + half, end);
}

struct Leaves {
  std::vector<Values> values;
  Fold fold;

  Leaves(int count, int64_t size, float scale) {
    for (int leaf = 0; leaf < count; ++leaf)
      values.push_back(Values::uniform({size}, DType::f32, static_cast<uint64_t>(leaf)));
    for (Values& leaf : values) fold.inputs.push_back(leaf.view());
    append_tree(0, count, fold.program);
    fold.scale = scale;
  }
};

TEST(Fold, AddsInTheOrderOfTheTree) {
  for (const int count : {1, 2, 3, 7, 8, 33})
    for (const int64_t size : {1, 7, 1024, 20001})
      for (const int threads : {1, 3}) {
        Leaves leaves(count, size, 0.3f);
        Values y({size});
        leaves.fold.y = y.view();
        launch_on(threads, leaves.fold);
        expect_close(
            y, [&](int64_t i) { return tree_sum(leaves.values, i, 0, count) * 0.3f; }, 0.0, 0.0);
      }
}

TEST(Fold, MayOverwriteAnInput) {
  for (const size_t target : {0u, 3u, 4u}) {
    Leaves leaves(5, 3001, 0.2f);
    Values y({3001});
    leaves.fold.y = y.view();
    launch_on(1, leaves.fold);
    leaves.fold.y = leaves.values[target].view();
    launch_on(3, leaves.fold);
    EXPECT_TRUE(leaves.values[target] == y);
  }
}

TEST(Fold, WhatIsNoProgramIsRefused) {
  Leaves leaves(3, 5, 1.0f);
  Values y({5}), short_y({4});
  leaves.fold.y = y.view();
  for (const std::vector<int>& program :
       std::vector<std::vector<int>>{{}, {0, 1}, {0, Fold::add, 1}, {Fold::add}, {0, 3, Fold::add}}) {
    leaves.fold.program = program;
    EXPECT_THROW(launch_on(1, leaves.fold), Error);
  }
  leaves.fold.program = {0, 1, Fold::add};
  EXPECT_NO_THROW(launch_on(1, leaves.fold));
  leaves.fold.y = short_y.view();
  EXPECT_THROW(launch_on(1, leaves.fold), Error);
}

}  // namespace
}  // namespace lockstep::testing
