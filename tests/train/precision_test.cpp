// SPDX-License-Identifier: Apache-2.0
// Whole runs in 16 bits on a CPU. The bits are equal on any number of ranks and after any snapshot, even if
// steps are skipped.
#include <filesystem>
#include <gtest/gtest.h>

#include "lockstep/tensor/ops.h"
#include "tests/support/config_support.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

Job small(const TemporaryDirectory& directory, DType precision) {
  Job job = tiny_config(directory, 3);
  job.compute.precision = precision;
  job.batches.batch_size = 4;
  job.batches.accumulate = 2;
  job.length.steps = 12;
  return job;
}

/// Makes replica 1 overflow in steps 2 and 7, counted from 0. Its loss stays finite, but its gradient does
/// not.
void plant_overflows(AlteredTask& task) {
  task.on_loss = [loss = task.on_loss](const Tensor& inputs, const Tensor& targets, const Context& context) {
    const bool is_planted = (context.step == 2 || context.step == 7) && context.sample % 12 / 4 == 1;
    if (!context.training || !is_planted) return loss(inputs, targets, context);
    Context untold = context;
    untold.loss_scale = {};
    return scale(loss(inputs, targets, untold), 1e37);
  };
}

/// Trains on ranks that are threads, with the planted overflows.
RunResult train_with_overflows(int ranks, const Job& settings) {
  const QuietStderr quiet;
  run_ranks(ranks, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    Job job = settings;
    job.compute.threads = ranks == 1 ? 2 : 1;
    job = resolve(job, world);
    const LanguageData data = short_language_data(job, 100);
    const auto model = make_model(job, data.vocabulary_size);
    const LanguageTask original(job, *model, data);
    AlteredTask task(original);
    plant_overflows(task);
    EXPECT_EQ(train(job, world, task), 0);
  });
  return read_result(settings.log.dir);
}

/// Returns the values of a key of metrics.jsonl in all steps. It skips steps in which the key is null or
/// absent.
std::vector<double> metric(const std::string& key, const Job& job) {
  std::vector<double> values;
  std::ifstream file(job.log.dir + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    if (const auto object = nlohmann::json::parse(line); object.contains(key) && object[key].is_number())
      values.push_back(object[key]);
  return values;
}

TEST(Precision, SixteenBitsHaveTheSameBitsAnywhereAndTheirOwn) {
  const TemporaryDirectory directory;
  std::vector<RunResult> runs;
  for (DType precision : {DType::f32, DType::bf16, DType::f16}) {
    const Job job = small(directory, precision);
    runs.push_back(train_on(1, 1, job));
    EXPECT_EQ(metric("loss_scale", job).empty(), runs.size() < 3);
    if (runs.size() == 1) continue;
    for (const int ranks : {2, 3}) EXPECT_EQ(train_on(ranks, 2, job), runs.back()) << precision << ranks;
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
  Job job = small(directory, DType::f16);
  const RunResult alone = train_with_overflows(1, job);
  ASSERT_EQ(alone.losses.size(), 12U);
  EXPECT_EQ(metric("skipped_steps", job), (std::vector<double>{0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2}));
  EXPECT_EQ(metric("loss_scale", job).back(), 16384.0);
  EXPECT_EQ(metric("grad_norm", job).size(), 10U) << "a norm that is not finite must be null";
  EXPECT_NE(train_on(1, 1, job).parameters_hash, alone.parameters_hash) << "nothing was skipped";
  for (const int ranks : {2, 3}) EXPECT_EQ(train_with_overflows(ranks, job), alone) << ranks << " ranks";
  job.snapshots.path = directory / "snapshots";
  job.snapshots.every_steps = 4;
  job.snapshots.keep = 10;
  EXPECT_EQ(train_with_overflows(2, job), alone) << "snapshots changed the bits";
  job.snapshots.resume = Resume::if_possible;
  for (const char* later : {"12", "08"})
    std::filesystem::remove_all(directory / concat("snapshots/step-000000", later));
  EXPECT_EQ(train_with_overflows(3, job), alone) << "resumed between the two";
}

TEST(Precision, AScaleThatDoesNotHelpEndsTheRunByName) {
  const TemporaryDirectory directory;
  Job job = small(directory, DType::f16);
  job.length.steps = 100;
  job.schedule.learning_rate = 1e30;
  job.schedule.warmup_steps = 0;
  job.optimizer.grad_clip = 0.0;
  expect_contains(user_error([&] { train_on(1, 1, job); }),
                  {"step ", "with a loss scale of ", "train.learning_rate", "--fresh"});
}

}  // namespace
}  // namespace lockstep
