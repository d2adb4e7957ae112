// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <gtest/gtest.h>
#include <limits>

#include "lockstep/train/evaluation.h"
#include "support/tiny_training.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

TEST(EarlyStopping, CountsValidationsSinceTheBest) {
  EarlyStopping stopping{.patience = 2};
  for (const double loss : {3.0, 2.0, 2.5, 1.9, 1.9}) stopping.judge(10, loss);
  EXPECT_FALSE(stopping.is_over());
  EXPECT_EQ(stopping.reason(), "");
  stopping.judge(60, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(stopping.is_over());
  EXPECT_EQ(stopping.reason(),
            "stopped early: no better validation loss than 1.9 after step 10 in 2 validations");
}

TEST(EarlyStopping, BetterIsByMoreThanADifference) {
  EarlyStopping stopping{.patience = 2, .min_delta = 0.5};
  for (const double loss : {3.0, 2.5, 2.4}) stopping.judge(1, loss);
  EXPECT_EQ(stopping.record.best_loss, 2.4);
  for (const double loss : {2.0, 1.9}) stopping.judge(2, loss);
  EXPECT_TRUE(stopping.is_over()) << "neither loss is below 2.4 by 0.5";
  EarlyStopping never{.patience = 0};
  for (int i = 0; i < 100; ++i) never.judge(i, 1.0);
  EXPECT_FALSE(never.is_over());
}

TEST(EarlyStopping, EndsARunAsFinishedAndStaysSoWhereverItGoesOn) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 4);
  job.length.steps = 40;
  job.validation.eval_every = 3;
  job.validation.patience = 2;
  job.validation.min_delta = 100.0;  // no loss is better by that much
  const RunResult undisturbed = train_on(1, 1, job);
  EXPECT_EQ(undisturbed.losses.size(), 9U) << "step 3 is the best, 6 and 9 are not";
  EXPECT_NE(undisturbed.parameters_hash, "");
  job.snapshots.path = directory / "snapshots";
  job.snapshots.every_steps = 4;
  job.snapshots.keep = 10;
  EXPECT_EQ(train_on(3, 1, job), undisturbed);
  job.snapshots.resume = Resume::if_possible;
  testing::internal::CaptureStderr();
  EXPECT_EQ(train_on_threads(2, 1, job), 0);
  expect_contains(testing::internal::GetCapturedStderr(), {"stopped early: no better validation loss than ",
                                                           "after step 3 in 2 validations", "done: 9 steps"});
  EXPECT_EQ(read_result(job.log.dir), undisturbed) << "the run has finished";
  for (const char* later : {"8", "9"})
    std::filesystem::remove_all(directory / concat("snapshots/step-0000000", later));
  EXPECT_EQ(train_on(2, 1, job), undisturbed) << "the count is in the snapshot";
  job.validation.patience = 3;
  EXPECT_EQ(train_on(2, 1, job).losses.size(), 12U) << "a longer patience must continue the run";
}

TEST(EarlyStopping, StaysSoWithoutASnapshotToo) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.length.steps = 40;
  job.validation.eval_every = 3;
  job.validation.patience = 2;
  job.validation.min_delta = 100.0;  // no loss is better by that much
  job.snapshots.resume = Resume::if_possible;
  const RunResult first = train_on(1, 1, job);
  const std::string moved = directory / "run.1";
  for (const int64_t patience : {2, 1}) {
    job.validation.patience = patience;
    testing::internal::CaptureStderr();
    EXPECT_EQ(train_on_threads(1, 1, job), 0);
    expect_contains(testing::internal::GetCapturedStderr(), {"already finished", "done: 9 steps"});
    EXPECT_EQ(read_result(job.log.dir), first);
    EXPECT_FALSE(std::filesystem::exists(moved));
  }
  job.validation.patience = 3;
  EXPECT_EQ(train_on(1, 1, job).losses.size(), 12U);
  EXPECT_EQ(read_result(moved), first) << "nothing can be resumed, so it is another run";
}

}  // namespace
}  // namespace lockstep
