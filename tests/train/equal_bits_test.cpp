// SPDX-License-Identifier: Apache-2.0
// Settings that must not change the bits of a run: ranks, threads, sharding and recomputation. They are
// combined in every pair with settings that do change the bits.
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

/// Levels of the factors below.
using Row = std::array<int, 10>;
enum Factor : uint8_t {
  ranks,
  shard,
  recompute,
  precision,
  replicas,
  dropout,
  clip,
  tied,
  accumulate,
  tuned
};
constexpr std::array levels = {5, 4, 5, 3, 2, 2, 2, 2, 2, 2};

/// Returns twenty-five rows in which every level of every factor meets every level of every other. They are
/// lines of the plane over the field of five elements (Rao 1947). Factors of few levels share a column.
std::vector<Row> orthogonal_rows() {
  const auto half = [](int x) { return std::min(x, 3) / 2; };
  const auto other_half = [](int x) { return std::min(x, 3) % 2; };
  std::vector<Row> rows;
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 5; ++j) {
      const auto column = [&](int k) { return (i + k * j) % 5; };
      rows.push_back({i, std::min(j, 3), column(1), column(2) % 3, other_half(column(3)), half(column(3)),
                      half(column(4)), other_half(column(4)), half(column(4)) ^ other_half(column(4)),
                      half(column(3)) ^ other_half(column(3))});
    }
  return rows;
}

/// Makes the run fine-tune: loss masks, frozen parameters, groups and another schedule.
void tune(Config& config) {
  config.data.dataset = "examples.jsonl";
  config.train.freeze = "transformer.wpe.*, *.h.0.*, *.h.1.mlp.c_fc.weight, *.ln_2.bias";
  config.train.groups = "*.h.1.* lr_factor=0.5, *.bias weight_decay=0.3";
  config.train.schedule = "wsd";
  config.train.cooldown_steps = 4;
}

/// Returns the number of ranks of a row. Two levels have four ranks. One of them has two groups, if values
/// are sharded.
int rank_count(const Row& row) { return std::min(row[ranks] + 1, 4); }

Config config_of(const Row& row, const TemporaryDirectory& directory) {
  constexpr std::array stages = {"none", "optimizer", "gradients", "full"};
  constexpr std::array names = {"fp32", "bf16", "fp16"};
  constexpr std::array ways = {"none", "attention", "block", "segments=2", "segments=3"};
  Config config = tiny_config(directory, 4 + row[replicas]);
  config.train.steps = 10;
  config.model.n_layer = 3;
  config.train.batch_size = 2;
  config.dist.shard = stages[static_cast<size_t>(row[shard])];
  if (row[ranks] == 4 && row[shard] == 3) config.dist.group = 2;
  config.train.recompute = ways[static_cast<size_t>(row[recompute])];
  config.train.precision = names[static_cast<size_t>(row[precision])];
  config.model.dropout = row[dropout] * 0.1;
  config.train.grad_clip = row[clip] * 0.5;
  config.model.tie_weights = row[tied] == 1;
  config.train.accumulate = row[accumulate] + 1;
  if (row[tuned] == 1) tune(config);
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

TEST(EqualBits, OverRanksThreadsShardingAndRecomputation) {
  const TemporaryDirectory directory;
  std::map<Row, RunResult> expected;  // [row without the settings that must not change the bits]
  std::set<std::string> hashes;
  for (const Row& row : orthogonal_rows()) {
    Row plain = row;
    plain[ranks] = plain[shard] = plain[recompute] = 0;
    if (!expected.contains(plain)) expected[plain] = train_on(1, 1, config_of(plain, directory));
    ASSERT_EQ(expected[plain].loss_bits.size(), 10U);
    const Config config = config_of(row, directory);
    EXPECT_EQ(train_on(rank_count(row), 2, config), expected[plain])
        << rank_count(row) << " ranks, " << config.dist.shard << " in groups of " << config.dist.group << ", "
        << config.train.recompute << ", " << config.train.precision;
    hashes.insert(expected[plain].parameters_hash);
  }
  EXPECT_EQ(hashes.size(), expected.size()) << "different settings have the same bits";
}

}  // namespace
}  // namespace lockstep
