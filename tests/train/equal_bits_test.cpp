// SPDX-License-Identifier: Apache-2.0
// Settings that must not change the bits of a run: ranks, threads, sharding and recomputation. They are
// combined in every pair with settings that do change the bits.
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "lockstep/models/llama/llama_options.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

/// Levels of the factors below.
using Row = std::array<int, 11>;
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
  tuned,
  family
};
constexpr std::array levels = {5, 4, 5, 3, 2, 2, 2, 2, 2, 2, 3};

/// Returns twenty-five rows in which every level of every factor meets every level of every other. They are
/// lines of the plane over the field of five elements (Rao 1947). Factors of few levels share a column. The
/// family is a curve whose values meet every line.
std::vector<Row> orthogonal_rows() {
  const auto half = [](int x) { return std::min(x, 3) / 2; };
  const auto other_half = [](int x) { return std::min(x, 3) % 2; };
  std::vector<Row> rows;
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 5; ++j) {
      const auto column = [&](int k) { return (i + k * j) % 5; };
      rows.push_back({i, std::min(j, 3), column(1), column(2) % 3, other_half(column(3)), half(column(3)),
                      half(column(4)), other_half(column(4)), half(column(4)) ^ other_half(column(4)),
                      half(column(3)) ^ other_half(column(3)), (2 * i * j + j * j + 2 * i + 4 * j) % 5 % 3});
    }
  return rows;
}

/// Makes the run fine-tune: loss masks, frozen parameters, groups and another schedule.
void tune(Job& job) {
  job.text.dataset = "examples.jsonl";
  const bool is_gpt2 = job.model.family == "gpt2";
  job.optimizer.freeze =
      is_gpt2 ? "transformer.wpe.*, *.h.0.*, *.h.1.mlp.c_fc.weight, *.ln_2.bias"
              : "model.norm.weight, *.layers.0.*, *.layers.1.mlp.up_proj.weight, *.2.*.k_proj.*";
  job.optimizer.groups = is_gpt2 ? "*.h.1.* lr_factor=0.5, *.bias weight_decay=0.3"
                                 : "*.layers.1.* lr_factor=0.5, *norm.weight weight_decay=0.3";
  job.schedule.schedule = Schedule::wsd;
  job.schedule.cooldown_steps = 4;
}

/// Returns the number of ranks of a row. Two levels have four ranks. One of them has two groups, if values
/// are sharded.
int rank_count(const Row& row) { return std::min(row[ranks] + 1, 4); }

/// Chooses GPT-2, a Llama, or a Qwen of either version. Some have scaled rotary frequencies.
void choose_family(const Row& row, Job& job) {
  job.model.family = std::array{"gpt2", "llama", "qwen"}[static_cast<size_t>(row[family])];
  if (row[family] == 0) return;
  LlamaOptions llama{.n_kv_head = 1, .head_dim = 4 * row[family]};
  if (row[clip] == 1) llama.rope = {.scaling = RopeScaling::llama3, .factor = 4.0, .original_positions = 16};
  job.model.own["llama"] = llama;
  if (row[family] == 2 && row[tied] == 1) job = with_settings(job, {{"model.qwen_version", "2"}});
}

Job config_of(const Row& row, const TemporaryDirectory& directory) {
  using What = Recompute::What;
  constexpr std::array stages = {Shard::none, Shard::optimizer, Shard::gradients, Shard::full};
  constexpr std::array names = {DType::f32, DType::bf16, DType::f16};
  constexpr std::array ways = {Recompute{}, Recompute{What::attention}, Recompute{What::block},
                               Recompute{What::segments, 2}, Recompute{What::segments, 3}};
  Job job = tiny_config(directory, 4 + row[replicas]);
  job.length.steps = 10;
  job.model.n_layer = 3;
  job.batches.batch_size = 2;
  job.dist.shard = stages[static_cast<size_t>(row[shard])];
  if (row[ranks] == 4 && row[shard] == 3) job.dist.group = 2;
  job.compute.recompute = ways[static_cast<size_t>(row[recompute])];
  job.compute.precision = names[static_cast<size_t>(row[precision])];
  job.model.dropout = row[dropout] * 0.1;
  job.optimizer.grad_clip = row[clip] * 0.5;
  job.model.tie_weights = row[tied] == 1;
  choose_family(row, job);
  job.batches.accumulate = row[accumulate] + 1;
  if (row[tuned] == 1) tune(job);
  return job;
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
    const Job job = config_of(row, directory);
    EXPECT_EQ(train_on(rank_count(row), 2, job), expected[plain])
        << rank_count(row) << " ranks, with the settings\n"
        << to_ini(job);
    hashes.insert(expected[plain].parameters_hash);
  }
  EXPECT_EQ(hashes.size(), expected.size()) << "different settings have the same bits";
}

}  // namespace
}  // namespace lockstep
