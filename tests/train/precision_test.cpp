// SPDX-License-Identifier: Apache-2.0
// Whole runs in 16 bits on a CPU. The bits are equal on any number of ranks and after any snapshot, even if
// steps are skipped.
#include <filesystem>
#include <gtest/gtest.h>

#include "tensor/ops.h"
#include "tests/support/config_support.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

Config small(const TemporaryDirectory& directory, const char* precision) {
  Config config = tiny_config(directory, 3);
  config.train.precision = precision;
  config.train.batch_size = 4;
  config.train.accumulate = 2;
  config.train.steps = 12;
  return config;
}

/// Makes replica 1 overflow in steps 2 and 7, counted from 0. Its loss stays finite, but its gradient does
/// not.
void plant_overflows(TrainingTask& task) {
  task.loss = [loss = task.loss](const Tensor& inputs, const Tensor& targets, const Context& context) {
    const bool is_planted = (context.step == 2 || context.step == 7) && context.sample % 12 / 4 == 1;
    if (!context.training || !is_planted) return loss(inputs, targets, context);
    Context untold = context;
    untold.loss_scale = {};
    return scale(loss(inputs, targets, untold), 1e37);
  };
}

/// Trains on ranks that are threads, with the planted overflows.
RunResult train_with_overflows(int ranks, const Config& settings) {
  const QuietStderr quiet;
  run_ranks(ranks, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    Config config = settings;
    config.train.threads = ranks == 1 ? 2 : 1;
    settle(config, world);
    const LanguageData data = short_language_data(config, 100);
    const auto model = make_gpt(config, data.vocabulary_size);
    TrainingTask task = language_task(config, *model, data);
    plant_overflows(task);
    EXPECT_EQ(train(config, world, task), 0);
  });
  return read_result(settings.log.dir);
}

/// Returns the values of a key of metrics.jsonl in all steps. It skips steps in which the key is null or
/// absent.
std::vector<double> metric(const std::string& key, const Config& config) {
  std::vector<double> values;
  std::ifstream file(config.log.dir + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    if (const auto object = nlohmann::json::parse(line); object.contains(key) && object[key].is_number())
      values.push_back(object[key]);
  return values;
}

TEST(Precision, SixteenBitsHaveTheSameBitsAnywhereAndTheirOwn) {
  const TemporaryDirectory directory;
  std::vector<RunResult> runs;
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const Config config = small(directory, precision);
    runs.push_back(train_on(1, 1, config));
    EXPECT_EQ(metric("loss_scale", config).empty(), runs.size() < 3);
    if (runs.size() == 1) continue;
    for (const int ranks : {2, 3}) EXPECT_EQ(train_on(ranks, 2, config), runs.back()) << precision << ranks;
  }
  for (const RunResult& run : {runs[1], runs[2]}) {
    EXPECT_NE(run.parameters_hash, runs[0].parameters_hash);
    // Each rounding has an error of 2^-9. There are a few layers and a dozen steps.
    for (size_t step = 0; step < run.losses.size(); ++step)
      EXPECT_NEAR(run.losses[step], runs[0].losses[step], 0.02) << step;
  }
  EXPECT_NE(runs[1].parameters_hash, runs[2].parameters_hash);
}

TEST(Precision, StepsThatOverflowAreSkippedByAllAndSurviveSnapshots) {
  const TemporaryDirectory directory;
  Config config = small(directory, "fp16");
  const RunResult alone = train_with_overflows(1, config);
  ASSERT_EQ(alone.losses.size(), 12U);
  EXPECT_EQ(metric("skipped_steps", config), (std::vector<double>{0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2}));
  EXPECT_EQ(metric("loss_scale", config).back(), 16384.0);
  EXPECT_EQ(metric("grad_norm", config).size(), 10U) << "a norm that is not finite must be null";
  EXPECT_NE(train_on(1, 1, config).parameters_hash, alone.parameters_hash) << "nothing was skipped";
  for (const int ranks : {2, 3}) EXPECT_EQ(train_with_overflows(ranks, config), alone) << ranks << " ranks";
  config.snapshot.path = directory / "snapshots";
  config.snapshot.every_steps = 4;
  config.snapshot.keep = 10;
  EXPECT_EQ(train_with_overflows(2, config), alone) << "snapshots changed the bits";
  config.snapshot.resume = "auto";
  for (const char* later : {"12", "08"})
    std::filesystem::remove_all(directory / concat("snapshots/step-000000", later));
  EXPECT_EQ(train_with_overflows(3, config), alone) << "resumed between the two";
}

TEST(Precision, AScaleThatDoesNotHelpEndsTheRunByName) {
  const TemporaryDirectory directory;
  Config config = small(directory, "fp16");
  config.train.steps = 100;
  config.train.learning_rate = 1e30;
  config.train.warmup_steps = 0;
  config.train.grad_clip = 0.0;
  expect_contains(user_error([&] { train_on(1, 1, config); }),
                  {"step ", "with a loss scale of ", "train.learning_rate", "--fresh"});
}

}  // namespace
}  // namespace lockstep
