// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <set>

#include "kernels/processor.h"
#include "tests/support/config_support.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

// Each step executes all code that a sanitizer checks, so few steps are enough with one. Without one the bits
// of fifty steps are compared.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int gate_steps = 10;
#else
constexpr int gate_steps = 50;
#endif

class Gate : public testing::TestWithParam<int> {};

TEST_P(Gate, StepsHaveTheSameBitsAnywhere) {
  const int replicas = GetParam();
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, replicas);
  config.train.steps = gate_steps;
  const RunResult alone = train_on(1, 1, config);
  ASSERT_EQ(alone.loss_bits.size(), static_cast<size_t>(gate_steps));
  ASSERT_EQ(alone.parameters_hash.size(), 16u);
  for (int ranks = 1; ranks <= std::min(replicas, 7); ++ranks)
    for (int threads : {1, 2}) {
      config.dist.bucket_mib = ranks % 2 ? 25.0 : 0.002;
      EXPECT_EQ(train_on(ranks, threads, config), alone) << ranks << " ranks, " << threads << " threads";
    }
  config.train.seed = 7;
  EXPECT_NE(train_on(1, 1, config).parameters_hash, alone.parameters_hash) << "these bits could not differ";
}

INSTANTIATE_TEST_SUITE_P(Replicas, Gate, testing::Values(1, 3, 12));
INSTANTIATE_TEST_SUITE_P(MoreReplicas, Gate, testing::Values(7, 8));

TEST(Trainer, TheLastStepIsValidatedUnlessNoneIsWanted) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 1);
  config.train.steps = 3;
  EXPECT_NE(train_on(1, 1, config).validation_bits, std::vector<std::string>{});
  config.train.eval_every = -1;
  EXPECT_EQ(train_on(1, 1, config).validation_bits, std::vector<std::string>{});
}

TEST(Trainer, AccumulationIsPartOfTheSemanticsAndNotOfTheRanks) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 4);
  config.train.batch_size = 4;
  const RunResult whole = train_on(1, 1, config);
  config.train.accumulate = 2;
  const RunResult halves = train_on(1, 1, config);
  EXPECT_EQ(train_on(3, 1, config), halves);
  // The samples and masks are the same and are added in another order. The results are close, but not equal.
  EXPECT_NE(halves.parameters_hash, whole.parameters_hash);
}

TEST(Trainer, ResumesWithTheSameBitsAtAnotherNumberOfRanks) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 4);
  config.train.steps = 24;
  const RunResult undisturbed = train_on(2, 1, config);
  config.snapshot.path = directory / "snapshots";
  config.snapshot.every_steps = 5;
  config.snapshot.keep = 10;
  EXPECT_EQ(train_on(3, 1, config), undisturbed) << "snapshots changed the bits";
  config.snapshot.resume = "auto";
  for (int64_t step : {20, 10}) {
    // The run looks as if it was killed somewhere after that snapshot.
    for (int64_t later = step + 5; later <= 25; later += 5)
      std::filesystem::remove_all(directory / concat("snapshots/step-000000", later < 10 ? "0" : "", later));
    std::filesystem::remove_all(directory / "snapshots/step-00000024");
    EXPECT_EQ(train_on(step == 20 ? 1 : 4, 1, config), undisturbed) << "resumed after step " << step;
  }
}

TEST(Trainer, FrozenParametersAndGroupsResumeAtAnotherNumberOfRanksAndStage) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 4);
  config.train.steps = 8;
  const RunResult all_trained = train_on(1, 1, config);
  config.train.groups = "*.bias lr_factor=2 weight_decay=0.5, *.mlp.* lr_factor=0.1";
  const RunResult grouped = train_on(2, 1, config);
  config.train.freeze = "transformer.wte.*, *.c_attn.weight, *.c_fc.bias";
  const RunResult undisturbed = train_on(1, 1, config);
  EXPECT_EQ(
      std::set({all_trained.parameters_hash, grouped.parameters_hash, undisturbed.parameters_hash}).size(),
      3U);
  config.snapshot.path = directory / "snapshots";
  config.snapshot.every_steps = 3;
  config.snapshot.keep = 10;
  config.dist.shard = "full";
  EXPECT_EQ(train_on(3, 1, config), undisturbed);
  config.snapshot.resume = "auto";
  for (const char* stage : {"none", "gradients", "full"}) {
    for (const char* later : {"6", "8"})
      std::filesystem::remove_all(directory / concat("snapshots/step-0000000", later));
    config.dist.shard = stage;
    EXPECT_EQ(train_on(stage == std::string("none") ? 1 : 4, 1, config), undisturbed) << stage;
  }
}

TEST(Trainer, WritesSnapshotsByRankZerosClockWithoutChangingBits) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 4);
  config.train.steps = 6;
  const RunResult undisturbed = train_on(2, 1, config);
  config.snapshot.path = directory / "snapshots";
  config.snapshot.keep = 10;
  config.snapshot.every_minutes = 1e-9;  // always due
  EXPECT_EQ(train_on(3, 1, config), undisturbed);
  for (int step = 1; step <= 6; ++step)
    EXPECT_TRUE(std::filesystem::exists(directory / concat("snapshots/step-0000000", step))) << step;
  config.snapshot.every_minutes = 0.0;
  EXPECT_EQ(train_on(3, 1, config), undisturbed);
  EXPECT_FALSE(std::filesystem::exists(directory / "snapshots/step-00000001"));
}

TEST(Trainer, EvaluationDoesNotDependOnRanks) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 7);
  config.train.steps = 2;
  const RunResult alone = train_on(1, 1, config);
  ASSERT_EQ(alone.validation_bits.size(), 1u);
  for (int ranks : {2, 3, 7}) EXPECT_EQ(train_on(ranks, 1, config).validation_bits, alone.validation_bits);
}

TEST(Trainer, ALossThatIsNotFiniteEndsTheRunByName) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 2);
  config.train.learning_rate = 1e30;
  config.train.warmup_steps = 0;
  config.train.grad_clip = 0.0;
  // Divergence is a UserError, so no supervisor tries it again.
  expect_contains(user_error([&] { train_on(2, 1, config); }),
                  {"step ", "the loss is", "train.learning_rate", "train.grad_clip", "--fresh"});
}

TEST(Trainer, ACooldownLongerThanTheRunIsNotShortened) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 1);
  config.train.steps = 4;
  config.train.schedule = "wsd";
  config.train.cooldown_steps = 3;
  expect_contains(user_error([&] { train_on(1, 1, config); }),
                  {"train.warmup_steps = 2", "train.cooldown_steps = 3", "train.decay_steps = 4"});
  config.train.steps = 5;
  EXPECT_EQ(train_on(1, 1, config).losses.size(), 5U);
}

TEST(Trainer, TheStepsOfEpochsAreCheckedAsStepsAre) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 1);
  config.train.steps = 0;
  config.train.epochs = 1;
  config.train.warmup_steps = 100000;
  config.train.batch_size = 16;
  expect_contains(user_error([&] { train_on(1, 1, config); }),
                  {"train.warmup_steps = 100000", "is more than train.steps = ", "the length of the run"});
  // The decay may be longer than the run.
  config.train.decay_steps = 200000;
  EXPECT_FALSE(train_on(1, 1, config).losses.empty());
}

TEST(Trainer, SettingsOfAnEarlierRunAreCheckedWithThoseOfThisStart) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 1);
  config.train.steps = 2;
  config.model.n_layer = 2;
  config.snapshot.path = directory / "snapshots";
  train_on(1, 1, config);
  config.snapshot.resume = "auto";
  config.train.steps = 4;
  config.train.recompute = "segments=3";
  config.model.n_layer = 4;
  config.unset = {"model.n_layer"};
  expect_contains(user_error([&] { train_on(1, 1, config); }),
                  {"train.recompute = segments=3", "model.n_layer = 2"});
}

TEST(Trainer, AllDataMayTrain) {
  for (const char* dataset : {"sample", "examples.jsonl"}) {
    const TemporaryDirectory directory;
    Config config = tiny_config(directory, 2);
    config.data.dataset = dataset;
    config.data.train_split = 1.0;
    config.train.steps = 3;
    config.snapshot.path = "auto";
    const RunResult result = train_on(2, 1, config);
    EXPECT_EQ(result.losses.size(), 3U);
    EXPECT_TRUE(result.validation_bits.empty());
  }
}

TEST(Trainer, EarlyStoppingNeedsSomethingToValidateOn) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 1);
  config.train.eval_every = 10;
  config.train.patience = 3;
  const QuietStderr quiet;
  expect_contains(user_error([&] {
                    train_on_threads(1, 1, config,
                                     [](TrainingTask& task) { task.validation_data = nullptr; });
                  }),
                  {"train.patience = 3", "validation"});
}

TEST(Trainer, RefusesMoreStepsThanItCanCount) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 1);
  config.train.precision = "fp16";
  config.train.steps = int64_t{1} << 31;
  expect_contains(user_error([&] { train_on(1, 1, config); }),
                  {"train.steps = 2147483648", "fp16", "2147483647"});
  config.train.steps = 0;
  config.train.epochs = int64_t{1} << 62;
  expect_contains(user_error([&] { train_on(1, 1, config); }),
                  {"train.epochs = 4611686018427387904", "too many"});
}

TEST(Trainer, RefusesShardingThatCannotBe) {
  const auto refusal = [](const std::string& shard, const std::string& offload,
                          const std::function<void(Config&)>& change) {
    Config config;
    config.train.steps = 1;
    config.dist.shard = shard;
    config.dist.offload = offload;
    change(config);
    return user_error([&] { settle(config, World::alone()); });
  };
  const auto natively = [](Config& config) { config.dist.reduction = "native"; };
  const auto tuned = [](Config& config) { config.train.tune_matmul = true; };
  expect_contains(refusal("full", "none", natively), {"dist.shard = full", "dist.reduction = tree"});
  expect_contains(refusal("none", "optimizer", natively),
                  {"dist.offload = optimizer", "dist.reduction = tree"});
  expect_contains(refusal("gradients", "none", tuned), {"train.tune_matmul", "dist.shard = gradients"});
  expect_contains(refusal("none", "all", tuned), {"train.tune_matmul", "dist.offload = all"});
}

TEST(Trainer, AmxIsOnlyUsedWhereItIsAskedForAndPossible) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 2);
  config.train.amx = true;
  expect_contains(user_error([&] { train_on(1, 1, config); }), {"train.amx", "train.precision = bf16"});
  config.train.precision = "bf16";
  if (has_bf16_unit()) {
    train_on(1, 1, config);
    EXPECT_TRUE(uses_bf16_unit());
  } else {
    expect_contains(user_error([&] { train_on(2, 1, config); }), {"train.amx", "rank 0", "has no AMX"});
  }
  config.train.amx = false;
  config.log.dir = directory / "without";
  train_on(1, 1, config);
  EXPECT_FALSE(uses_bf16_unit());
}

TEST(Trainer, WhereThereIsOneMemoryOffloadingChangesNothing) {
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 2);
  const RunResult expected = train_on(1, 1, config);
  config.dist.offload = "all";
  for (const int ranks : {1, 2}) EXPECT_EQ(train_on(ranks, 1, config), expected) << ranks << " ranks";
}

TEST(Trainer, WritesTextFromACorpusOfOneLine) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "abc de"[i * i % 6];
  write_text(directory / "corpus.txt", text);
  Config config = tiny_config(directory, 1);
  config.data.dataset = directory / "corpus.txt";
  config.train.steps = 3;
  config.train.sample_every = 1;
  const QuietStderr quiet;
  const World world = World::alone();
  const LanguageData data = load_language_data(config, world);
  const auto model = make_gpt(config, data.vocabulary_size);
  config.train.threads = 2;
  EXPECT_EQ(train(config, world, language_task(config, *model, data)), 0);
  EXPECT_EQ(std::get<CpuStream>(cpu_stream()).pool->size(), 2)
      << "a call as a library must use the threads that it reports";
  set_threads(1);
}

}  // namespace
}  // namespace lockstep
