// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/trainer.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <set>

#include "lockstep/kernels/processor.h"
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
  Job job = tiny_config(directory, replicas);
  job.length.steps = gate_steps;
  const RunResult alone = train_on(1, 1, job);
  ASSERT_EQ(alone.loss_bits.size(), static_cast<size_t>(gate_steps));
  ASSERT_EQ(alone.parameters_hash.size(), 16u);
  for (int ranks = 1; ranks <= std::min(replicas, 7); ++ranks)
    for (int threads : {1, 2}) {
      job.dist.bucket_mib = ranks % 2 ? 25.0 : 0.002;
      EXPECT_EQ(train_on(ranks, threads, job), alone) << ranks << " ranks, " << threads << " threads";
    }
  job.compute.seed = 7;
  EXPECT_NE(train_on(1, 1, job).parameters_hash, alone.parameters_hash) << "these bits could not differ";
}

INSTANTIATE_TEST_SUITE_P(Replicas, Gate, testing::Values(1, 3, 12));
INSTANTIATE_TEST_SUITE_P(MoreReplicas, Gate, testing::Values(7, 8));

TEST(Trainer, TheLastStepIsValidatedUnlessNoneIsWanted) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.length.steps = 3;
  EXPECT_NE(train_on(1, 1, job).validation_bits, std::vector<std::string>{});
  job.validation.eval_every = -1;
  EXPECT_EQ(train_on(1, 1, job).validation_bits, std::vector<std::string>{});
}

TEST(Trainer, AccumulationIsPartOfTheSemanticsAndNotOfTheRanks) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 4);
  job.batches.batch_size = 4;
  const RunResult whole = train_on(1, 1, job);
  job.batches.accumulate = 2;
  const RunResult halves = train_on(1, 1, job);
  EXPECT_EQ(train_on(3, 1, job), halves);
  // The samples and masks are the same and are added in another order. The results are close, but not equal.
  EXPECT_NE(halves.parameters_hash, whole.parameters_hash);
}

TEST(Trainer, ResumesWithTheSameBitsAtAnotherNumberOfRanks) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 4);
  job.length.steps = 24;
  const RunResult undisturbed = train_on(2, 1, job);
  job.snapshots.path = directory / "snapshots";
  job.snapshots.every_steps = 5;
  job.snapshots.keep = 10;
  EXPECT_EQ(train_on(3, 1, job), undisturbed) << "snapshots changed the bits";
  job.snapshots.resume = Resume::if_possible;
  for (int64_t step : {20, 10}) {
    // The run looks as if it was killed somewhere after that snapshot.
    for (int64_t later = step + 5; later <= 25; later += 5)
      std::filesystem::remove_all(directory / concat("snapshots/step-000000", later < 10 ? "0" : "", later));
    std::filesystem::remove_all(directory / "snapshots/step-00000024");
    EXPECT_EQ(train_on(step == 20 ? 1 : 4, 1, job), undisturbed) << "resumed after step " << step;
  }
}

TEST(Trainer, FrozenParametersAndGroupsResumeAtAnotherNumberOfRanksAndStage) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 4);
  job.length.steps = 8;
  const RunResult all_trained = train_on(1, 1, job);
  job.optimizer.groups = "*.bias lr_factor=2 weight_decay=0.5, *.mlp.* lr_factor=0.1";
  const RunResult grouped = train_on(2, 1, job);
  job.optimizer.freeze = "transformer.wte.*, *.c_attn.weight, *.c_fc.bias";
  const RunResult undisturbed = train_on(1, 1, job);
  EXPECT_EQ(
      std::set({all_trained.parameters_hash, grouped.parameters_hash, undisturbed.parameters_hash}).size(),
      3U);
  job.snapshots.path = directory / "snapshots";
  job.snapshots.every_steps = 3;
  job.snapshots.keep = 10;
  job.dist.shard = Shard::full;
  EXPECT_EQ(train_on(3, 1, job), undisturbed);
  job.snapshots.resume = Resume::if_possible;
  for (const Shard stage : {Shard::none, Shard::gradients, Shard::full}) {
    for (const char* later : {"6", "8"})
      std::filesystem::remove_all(directory / concat("snapshots/step-0000000", later));
    job.dist.shard = stage;
    EXPECT_EQ(train_on(stage == Shard::none ? 1 : 4, 1, job), undisturbed) << name(stage);
  }
}

TEST(Trainer, WritesSnapshotsByRankZerosClockWithoutChangingBits) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 4);
  job.length.steps = 6;
  const RunResult undisturbed = train_on(2, 1, job);
  job.snapshots.path = directory / "snapshots";
  job.snapshots.keep = 10;
  job.snapshots.every_minutes = 1e-9;  // always due
  EXPECT_EQ(train_on(3, 1, job), undisturbed);
  for (int step = 1; step <= 6; ++step)
    EXPECT_TRUE(std::filesystem::exists(directory / concat("snapshots/step-0000000", step))) << step;
  job.snapshots.every_minutes = 0.0;
  EXPECT_EQ(train_on(3, 1, job), undisturbed);
  EXPECT_FALSE(std::filesystem::exists(directory / "snapshots/step-00000001"));
}

TEST(Trainer, EvaluationDoesNotDependOnRanks) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 7);
  job.length.steps = 2;
  const RunResult alone = train_on(1, 1, job);
  ASSERT_EQ(alone.validation_bits.size(), 1u);
  for (int ranks : {2, 3, 7}) EXPECT_EQ(train_on(ranks, 1, job).validation_bits, alone.validation_bits);
}

TEST(Trainer, ALossThatIsNotFiniteEndsTheRunByName) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 2);
  job.schedule.learning_rate = 1e30;
  job.schedule.warmup_steps = 0;
  job.optimizer.grad_clip = 0.0;
  // Divergence is a UserError, so no supervisor tries it again.
  expect_contains(user_error([&] { train_on(2, 1, job); }),
                  {"step ", "the loss is", "train.learning_rate", "train.grad_clip", "--fresh"});
}

TEST(Trainer, ACooldownLongerThanTheRunIsNotShortened) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.length.steps = 4;
  job.schedule.schedule = Schedule::wsd;
  job.schedule.cooldown_steps = 3;
  expect_contains(user_error([&] { train_on(1, 1, job); }),
                  {"train.warmup_steps = 2", "train.cooldown_steps = 3", "train.decay_steps = 4"});
  job.length.steps = 5;
  EXPECT_EQ(train_on(1, 1, job).losses.size(), 5U);
}

TEST(Trainer, TheStepsOfEpochsAreCheckedAsStepsAre) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.length.steps = 0;
  job.length.epochs = 1;
  job.schedule.warmup_steps = 100000;
  job.batches.batch_size = 16;
  expect_contains(user_error([&] { train_on(1, 1, job); }),
                  {"train.warmup_steps = 100000", "is more than train.steps = ", "the length of the run"});
  // The decay may be longer than the run.
  job.schedule.decay_steps = 200000;
  EXPECT_FALSE(train_on(1, 1, job).losses.empty());
}

TEST(Trainer, SettingsOfAnEarlierRunAreCheckedWithThoseOfThisStart) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.length.steps = 2;
  job.model.n_layer = 2;
  job.snapshots.path = directory / "snapshots";
  train_on(1, 1, job);
  job.snapshots.resume = Resume::if_possible;
  job.length.steps = 4;
  job.compute.recompute = {Recompute::What::segments, 3};
  job.model.n_layer = 4;
  const QuietStderr quiet;
  expect_contains(user_error([&] { train_on_threads(1, 1, job, {}, {"model.n_layer"}); }),
                  {"train.recompute = segments=3", "model.n_layer = 2"});
}

TEST(Trainer, AllDataMayTrain) {
  const std::variant<NamedText, std::string> datasets[] = {NamedText::sample, "examples.jsonl"};
  for (const auto& dataset : datasets) {
    const TemporaryDirectory directory;
    Job job = tiny_config(directory, 2);
    job.text.dataset = dataset;
    job.text.train_split = 1.0;
    job.length.steps = 3;
    job.snapshots.path = NamedPlace::in_log_folder;
    const RunResult result = train_on(2, 1, job);
    EXPECT_EQ(result.losses.size(), 3U);
    EXPECT_TRUE(result.validation_bits.empty());
  }
}

TEST(Trainer, EarlyStoppingNeedsSomethingToValidateOn) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.validation.eval_every = 10;
  job.validation.patience = 3;
  const QuietStderr quiet;
  expect_contains(
      user_error([&] { train_on_threads(1, 1, job, [](AlteredTask& task) { task.validation = nullptr; }); }),
      {"train.patience = 3", "validation"});
}

TEST(Trainer, RefusesMoreStepsThanItCanCount) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.compute.precision = DType::f16;
  job.length.steps = int64_t{1} << 31;
  expect_contains(user_error([&] { train_on(1, 1, job); }),
                  {"train.steps = 2147483648", "fp16", "2147483647"});
  job.length.steps = 0;
  job.length.epochs = int64_t{1} << 62;
  expect_contains(user_error([&] { train_on(1, 1, job); }),
                  {"train.epochs = 4611686018427387904", "too many"});
}

TEST(Trainer, RefusesShardingThatCannotBe) {
  const auto refusal = [](Shard shard, Offload offload, const std::function<void(Job&)>& change) {
    Job job;
    job.length.steps = 1;
    job.dist.shard = shard;
    job.dist.offload = offload;
    change(job);
    return user_error([&] { resolve(job, World::alone()); });
  };
  const auto natively = [](Job& job) { job.dist.reduction = Reduction::native; };
  const auto tuned = [](Job& job) { job.compute.tune_matmul = true; };
  expect_contains(refusal(Shard::full, Offload::none, natively),
                  {"dist.shard = full", "dist.reduction = tree"});
  expect_contains(refusal(Shard::none, Offload::optimizer, natively),
                  {"dist.offload = optimizer", "dist.reduction = tree"});
  expect_contains(refusal(Shard::gradients, Offload::none, tuned),
                  {"train.tune_matmul", "dist.shard = gradients"});
  expect_contains(refusal(Shard::none, Offload::all, tuned), {"train.tune_matmul", "dist.offload = all"});
}

TEST(Trainer, AmxIsOnlyUsedWhereItIsAskedForAndPossible) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 2);
  job.compute.amx = true;
  expect_contains(user_error([&] { train_on(1, 1, job); }), {"train.amx", "train.precision = bf16"});
  job.compute.precision = DType::bf16;
  if (has_bf16_unit()) {
    train_on(1, 1, job);
    EXPECT_TRUE(uses_bf16_unit());
  } else {
    expect_contains(user_error([&] { train_on(2, 1, job); }), {"train.amx", "rank 0", "has no AMX"});
  }
  job.compute.amx = false;
  job.log.dir = directory / "without";
  train_on(1, 1, job);
  EXPECT_FALSE(uses_bf16_unit());
}

TEST(Trainer, WhereThereIsOneMemoryOffloadingChangesNothing) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 2);
  const RunResult expected = train_on(1, 1, job);
  job.dist.offload = Offload::all;
  for (const int ranks : {1, 2}) EXPECT_EQ(train_on(ranks, 1, job), expected) << ranks << " ranks";
}

TEST(Trainer, WritesTextFromACorpusOfOneLine) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "abc de"[i * i % 6];
  write_text(directory / "corpus.txt", text);
  Job job = tiny_config(directory, 1);
  job.text.dataset = directory / "corpus.txt";
  job.length.steps = 3;
  job.validation.sample_every = 1;
  const QuietStderr quiet;
  const World world = World::alone();
  job.compute.threads = 2;
  job = resolve(job, world);
  const LanguageData data = language_data(job, world, nullptr);
  const auto model = make_model(job, data.vocabulary_size);
  EXPECT_EQ(train(job, world, LanguageTask(job, *model, data)), 0);
  EXPECT_EQ(std::get<CpuStream>(cpu_stream()).pool->size(), 2)
      << "a call as a library must use the threads that it reports";
  set_threads(1);
}

}  // namespace
}  // namespace lockstep
