// SPDX-License-Identifier: Apache-2.0
// Runs that fail while something of theirs hangs. Each one ends a process of its own.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/tensor/operators.h"
#include "tests/support/config_support.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

/// Samples of which each step uses all. Their storage hangs from the third epoch on, while the second step is
/// computed.
class HangingSamples : public Dataset {
 public:
  HangingSamples(std::shared_ptr<const Dataset> samples, int64_t size)
      : samples_(std::move(samples)), size_(size) {}

  int64_t size() const override { return size_; }
  SampleField input() const override { return samples_->input(); }
  SampleField target() const override { return samples_->target(); }
  void fetch(int64_t index, void* input, void* target) const override {
    samples_->fetch(index, input, target);
  }
  void fetch_in_epoch(int64_t epoch, int64_t index, void* input, void* target) const override {
    hangs_ = epoch == 2;
    if (hangs_) std::this_thread::sleep_for(std::chrono::hours(1));
    fetch(index, input, target);
  }
  /// Waits until the thread hangs that prepares batches in the background. Without a spare core there is
  /// none.
  void wait() const {
    while (!hangs_ && available_cores() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::shared_ptr<const Dataset> samples_;
  int64_t size_;
  mutable std::atomic<bool> hangs_ = false;
};

TEST(FailingRunDeathTest, ReportsItsCauseAndEndsAlthoughAThreadHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.length.steps = 5;
  const auto fail = [&] {
    return train_on_threads(1, 1, job, [&](AlteredTask& task) {
      const auto samples = std::make_shared<HangingSamples>(task.training, job.batches.batch_size);
      task.training = samples;
      task.on_loss = [samples, loss = task.on_loss](const Tensor& inputs, const Tensor& targets,
                                                    const Context& context) {
        if (context.step == 0) return loss(inputs, targets, context);
        samples->wait();
        throw UserError("the cause of the failure");
      };
    });
  };
  EXPECT_EXIT(std::exit(run_program(fail)), testing::ExitedWithCode(2), "error: the cause of the failure\n$");
}

/// A run of six steps on two ranks that keeps the snapshots of steps 2, 4 and 6.
class FailingStep : public testing::Test {
 protected:
  FailingStep() {
    config_.length.steps = 6;
    config_.snapshots = SnapshotOptions{.every_steps = 2, .keep = 10};
  }

  std::string snapshot(int step) const { return concat(config_.log.dir, "/snapshots/step-0000000", step); }
  bool has(int step) const { return std::filesystem::exists(snapshot(step)); }
  /// Makes the finished run look as if it was killed after its fourth step.
  void cut_after_fourth_step() const { std::filesystem::remove_all(snapshot(6)); }

  /// Trains. Rank 0's loss of `step` is not a number, at most `times` times. Returns what was logged, then
  /// the error that ended the run.
  std::string log_of_failing(uint32_t step, int times) const {
    testing::internal::CaptureStderr();
    const auto plant = [&](AlteredTask& task) {
      task.on_loss = [&times, step, loss = task.on_loss](const Tensor& inputs, const Tensor& targets,
                                                         const Context& context) {
        const bool fails = context.training && context.step + 1 == step && --times >= 0;
        return scale(loss(inputs, targets, context), fails ? std::nan("") : 1.0);
      };
    };
    std::string error;
    try {
      train_on_threads(2, 1, config_, plant);
    } catch (const UserError& failure) {
      error = failure.what();
    }
    return testing::internal::GetCapturedStderr() + error;
  }

  TemporaryDirectory directory_;
  Job config_ = tiny_config(directory_, 2);
};

TEST_F(FailingStep, AfterAResumeGoesBackOnceToTheSnapshotBefore) {
  const RunResult undisturbed = train_on(2, 1, config_);
  cut_after_fourth_step();
  expect_contains(log_of_failing(5, 1), {"step 5: the loss is nan", "from the snapshot of step 4",
                                         "going back once to the snapshot of step 2", "done: 6 steps"});
  EXPECT_EQ(read_result(config_.log.dir), undisturbed);
}

TEST_F(FailingStep, AgainIsDivergenceInThisStartAndInLaterOnes) {
  train_on(2, 1, config_);
  cut_after_fourth_step();
  const std::string end = "start again with --fresh";
  expect_contains(log_of_failing(5, 9), {"going back once", "step 5: the loss is nan", end});
  for (int start = 0; start < 2; ++start) {
    const std::string log = log_of_failing(5, 9);
    expect_contains(log, {"resuming after step ", end});
    EXPECT_EQ(log.find("going back"), std::string::npos) << log;
    EXPECT_TRUE(has(4));
  }
}

TEST_F(FailingStep, WithoutAnOlderSnapshotOrAfterANewOneIsDivergence) {
  train_on(2, 1, config_);
  for (const auto& [step, oldest] : {std::pair(6, 2), std::pair(3, 2)}) {
    // The first run resumes from step 4 and writes no snapshot before step 6; the second has one snapshot.
    if (step == 3) std::filesystem::remove_all(snapshot(4));
    cut_after_fourth_step();
    EXPECT_TRUE(has(oldest));
    config_.snapshots.every_steps = step == 6 ? 1 : 2;
    const std::string log = log_of_failing(static_cast<uint32_t>(step), 9);
    EXPECT_EQ(log.find("going back"), std::string::npos) << log;
    expect_contains(log, {concat("step ", step, ": the loss is nan")});
  }
}

TEST_F(FailingStep, AFailureInTheLastValidationLosesNoStep) {
  config_.snapshots.every_steps = 0;
  const RunResult undisturbed = train_on(2, 1, config_);
  ASSERT_EQ(undisturbed.validation_bits.size(), 1U);
  std::filesystem::remove_all(config_.log.dir);
  const auto fail = [](AlteredTask& task) {
    task.on_loss = [loss = task.on_loss](const Tensor& inputs, const Tensor& targets,
                                         const Context& context) {
      require(context.training, "a failure in the validation");
      return loss(inputs, targets, context);
    };
  };
  {
    const QuietStderr quiet;
    EXPECT_THROW(train_on_threads(2, 1, config_, fail), UserError);
  }
  EXPECT_EQ(read_result(config_.log.dir).loss_bits, undisturbed.loss_bits);
  EXPECT_TRUE(has(6));
  int steps = 0;
  const QuietStderr quiet;
  const auto count = [&](AlteredTask& task) {
    task.on_loss = [&steps, loss = task.on_loss](const Tensor& inputs, const Tensor& targets,
                                                 const Context& context) {
      steps += context.training ? 1 : 0;
      return loss(inputs, targets, context);
    };
  };
  EXPECT_EQ(train_on_threads(2, 1, config_, count), 0);
  EXPECT_EQ(steps, 0) << "only the validation is left";
  EXPECT_EQ(read_result(config_.log.dir), undisturbed);
}

TEST_F(FailingStep, TheLastSnapshotGetsTheLastValidationAndIsNotWrittenAgain) {
  std::filesystem::file_time_type written;
  const std::string model = snapshot(6) + "/model.safetensors";
  const auto observe = [&](AlteredTask& task) {
    task.on_loss = [&written, model, loss = task.on_loss](const Tensor& inputs, const Tensor& targets,
                                                          const Context& context) {
      if (!context.training) written = std::filesystem::last_write_time(model);
      return loss(inputs, targets, context);
    };
  };
  {
    const QuietStderr quiet;
    EXPECT_EQ(train_on_threads(2, 1, config_, observe), 0);
  }
  EXPECT_EQ(std::filesystem::last_write_time(model), written);
  const std::string state = read_text(snapshot(6) + "/state.json");
  expect_contains(state, {R"("finished": true)", R"("validation_pending": false)", R"("best_step": 6)"});
  EXPECT_EQ(state.find(R"("best_validation_loss": null)"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
