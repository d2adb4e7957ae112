// SPDX-License-Identifier: Apache-2.0
// What must not show in the bits of a run (ranks, threads, recomputation) against what does, in every pair.
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

/// Levels of the factors below.
using Row = std::array<int, 7>;
enum Factor : uint8_t { ranks, recompute, precision, dropout, clip, tied, accumulate };
constexpr std::array levels = {4, 4, 3, 2, 2, 2, 2};

/// Sixteen rows in which every level of every factor meets every level of every other: lines of the plane
/// over the field of four elements, where addition is exclusive or (Rao 1947). Two factors of two levels
/// share one of four.
std::vector<Row> orthogonal_rows() {
  const auto twice = [](int x) { return x < 2 ? 2 * x : 5 - x; };  // 0, 2, 3, 1
  std::vector<Row> rows;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int first = i ^ twice(j), second = first ^ j;
      rows.push_back({i, j, (i ^ j) % 3, first % 2, first / 2, second % 2, second / 2});
    }
  return rows;
}

Config config_of(const Row& row, const TemporaryDirectory& directory) {
  constexpr std::array names = {"fp32", "bf16", "fp16"};
  constexpr std::array ways = {"none", "attention", "block", "segments=2"};
  Config config = tiny_config(directory, 5);
  config.train.steps = 10;
  config.model.n_layer = 3;
  config.train.batch_size = 2;
  config.train.recompute = ways[static_cast<size_t>(row[recompute])];
  config.train.precision = names[static_cast<size_t>(row[precision])];
  config.model.dropout = row[dropout] * 0.1;
  config.train.grad_clip = row[clip] * 0.5;
  config.model.tie_weights = row[tied] == 1;
  config.train.accumulate = row[accumulate] + 1;
  return config;
}

TEST(EqualBits, TheTableHasEveryPair) {
  for (size_t a = 0; a < levels.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      std::set<std::pair<int, int>> pairs;
      for (const Row& row : orthogonal_rows()) pairs.insert({row[a], row[b]});
      EXPECT_EQ(pairs.size(), static_cast<size_t>(levels[a] * levels[b])) << a << " with " << b;
    }
}

TEST(EqualBits, OverRanksThreadsAndRecomputation) {
  const TemporaryDirectory directory;
  std::set<std::string> hashes;
  for (const Row& row : orthogonal_rows()) {
    Row plain = row;
    plain[ranks] = plain[recompute] = 0;
    const RunResult expected = train_on(1, 1, config_of(plain, directory));
    ASSERT_EQ(expected.loss_bits.size(), 10U);
    const Config config = config_of(row, directory);
    EXPECT_EQ(train_on(row[ranks] + 1, 2, config), expected)
        << row[ranks] + 1 << " ranks, " << config.train.recompute << ", " << config.train.precision;
    hashes.insert(expected.parameters_hash);
  }
  EXPECT_EQ(hashes.size(), 16U) << "rows of other meaning have the same bits";
}

}  // namespace
}  // namespace lockstep
