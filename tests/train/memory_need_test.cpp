// SPDX-License-Identifier: Apache-2.0
#include "train/memory_need.h"

#include <gtest/gtest.h>

#include "support/config_support.h"
#include "train/language_model.h"

namespace lockstep {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

double bytes_of(const std::vector<MemoryNeed>& needs, const std::string& name) {
  for (const MemoryNeed& need : needs)
    if (need.name == name) return need.bytes;
  ADD_FAILURE() << name;
  return 0;
}

TEST(MemoryNeed, IsALittleLessThanTheModelHas) {
  for (const bool tie_weights : {true, false}) {
    Config config = load({"train.steps=1", "model.n_embd=192", "model.n_layer=3", "model.n_head=3"});
    config.model.tie_weights = tie_weights;
    const double need = bytes_of(least_memory(config, 1000, 1 << 20), "parameters");
    const double truth = 4.0 * static_cast<double>(count_parameters(make_gpt(config, 1000)->parameters()));
    EXPECT_LE(need, truth);
    EXPECT_GE(need, 0.98 * truth);
  }
}

TEST(MemoryNeed, LogitsAreThoseOfOneMicroBatch) {
  Config config = load({"train.steps=1", "train.batch_size=16", "data.block_size=32", "dist.replicas=4"});
  EXPECT_EQ(bytes_of(least_memory(config, 100, 1 << 20), "logits"), 4.0 * 16 * 32 * 100);
  config.train.accumulate = 4;
  EXPECT_EQ(bytes_of(least_memory(config, 100, 1 << 20), "logits"), 4.0 * 4 * 32 * 100);
  config.train.logit_rows = 64;
  EXPECT_EQ(bytes_of(least_memory(config, 100, 1 << 20), "logits"), 4.0 * 64 * 100);
  config.train.logit_rows = 0;
  config.train.batch_size = 400;
  EXPECT_EQ(bytes_of(least_memory(config, 100, 40), "logits"), 4.0 * 11 * 32 * 100)
      << "no more than a replica's samples";
}

TEST(MemoryNeed, WhatCannotFitNamesTheKeyThatDominates) {
  const auto refusal = [](const std::vector<const char*>& words, int64_t vocabulary) {
    std::vector<const char*> all = {"train.steps=1"};
    all.insert(all.end(), words.begin(), words.end());
    const Config config = load(all);
    return user_error([&] {
      require_memory(config, least_memory(config, vocabulary, int64_t{1} << 40),
                     {24 * gib, "this machine has 48 GiB for 2 ranks"});
    });
  };
  expect_contains(refusal({"train.batch_size=100000000"}, 65),
                  {"train.batch_size = 100000000: a rank needs at least", "logits 1.5 TiB",
                   "this machine has 48 GiB for 2 ranks", "raise train.accumulate"});
  expect_contains(refusal({"model.n_embd=1000000"}, 65), {"model.n_embd = 1000000: ", "moments of AdamW"});
  expect_contains(refusal({"model.n_layer=1000000"}, 65), {"model.n_layer = 1000000: "});
  expect_contains(refusal({"model.vocab_size=1000000000"}, 1000000000), {"model.vocab_size = 1000000000: "});
  expect_contains(refusal({"data.block_size=1000000000"}, 65), {"data.block_size = 1000000000: "});
  EXPECT_EQ(refusal({"model.preset=gpt2-large"}, 50304), "(nothing was thrown)") << "12 GiB";
}

TEST(MemoryNeed, IsLessThanATrainingTakes) {
  // Peak of the CPU's memory for quickstart.ini with these batches, measured: 38.6 KB for each row of tokens.
  const Config config = load({"train.steps=1", "train.batch_size=32"});
  const auto needs = least_memory(config, 45, 1 << 20);
  EXPECT_LT(bytes_of(needs, "activations") + bytes_of(needs, "logits"), 38.6e3 * 32 * 64);
  EXPECT_GT(bytes_of(needs, "activations") + bytes_of(needs, "logits"), 0.5 * 38.6e3 * 32 * 64);
}

TEST(MemoryLimit, IsSomethingThatThisTestFitsIn) {
  const MemoryLimit limit = memory_limit(World::alone());
  EXPECT_GT(limit.bytes, 1 << 26);
  EXPECT_LT(limit.bytes, 1e16);
  EXPECT_NE(limit.owner.find("iB"), std::string::npos) << limit.owner;
}

}  // namespace
}  // namespace lockstep
