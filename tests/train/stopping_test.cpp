// SPDX-License-Identifier: Apache-2.0
// Runs that are asked to stop at a chosen moment. Each one ends a process of its own, because a request
// cannot be withdrawn.
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "lockstep/comm/stop_request.h"
#include "lockstep/core/error.h"
#include "lockstep/program/signals.h"
#include "tests/support/config_support.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The phase in which a request arrives.
enum class Moment { start, step, validation, sample };

class Stopping : public testing::Test {
 protected:
  Stopping() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    config_.length.steps = 12;
    config_.validation.eval_every = 6;
    config_.validation.sample_every = 6;
    config_.snapshots = SnapshotOptions{};
    // A death test runs its test again in another process, which must find the same folder.
    if (const char* folder = std::getenv("STOPPING_TEST_FOLDER")) config_.log.dir = folder;
    ::setenv("STOPPING_TEST_FOLDER", config_.log.dir.c_str(), 1);
  }
  ~Stopping() override { ::unsetenv("STOPPING_TEST_FOLDER"); }

  /// Trains on two ranks that are asked to stop at the `count`-th such moment. Ends the process with the
  /// run's exit code.
  [[noreturn]] void train_until(Moment moment, int count) const {
    listen_for_stop_requests();
    int left = moment == Moment::start ? 0 : count;
    const auto pass = [&](Moment now) {
      if (now == moment && --left == 0) std::raise(SIGUSR1);
    };
    if (moment == Moment::start) std::raise(SIGUSR1);
    const int code = train_on_threads(2, 1, config_, [&](AlteredTask& task) {
      task.on_loss = [pass, loss = task.on_loss](const Tensor& inputs, const Tensor& targets,
                                                 const Context& context) {
        pass(context.training ? Moment::step : Moment::validation);
        return loss(inputs, targets, context);
      };
      task.on_sample_text = [pass, write = task.on_sample_text](const std::function<bool()>& go_on) {
        return write([&] {
          pass(Moment::sample);
          return go_on();
        });
      };
    });
    fs::remove_all(directory_.path());
    std::exit(code);
  }

  void expect_stopped(Moment moment, int count, const std::string& said) {
    EXPECT_EXIT(train_until(moment, count), testing::ExitedWithCode(exit_stopped), said);
  }

  /// Returns the bits of a run and its best snapshot.
  std::pair<RunResult, std::string> outcome() const {
    return {read_result(config_.log.dir), read_text(config_.log.dir + "/snapshots/best/model.safetensors")};
  }

  TemporaryDirectory directory_;
  Job config_ = tiny_config(directory_, 2);
};

TEST_F(Stopping, AtAnyBoundaryItGoesOnWithTheSameBitsValidationsAndBest) {
  const Job own = config_;
  config_.log.dir = directory_ / "undisturbed";
  train_on(2, 1, config_);
  const auto undisturbed = outcome();
  ASSERT_EQ(undisturbed.first.validation_bits.size(), 2u);
  config_ = own;
  expect_stopped(Moment::start, 1, "before the training began");
  EXPECT_FALSE(fs::exists(config_.log.dir + "/snapshots/step-00000000"));
  // A request during the second step's forward pass is voted on with that step.
  expect_stopped(Moment::step, 2, "after step 2");
  expect_stopped(Moment::validation, 3, "in the validation after step 6");
  EXPECT_TRUE(read_result(config_.log.dir).validation_bits.empty());
  expect_stopped(Moment::validation, 2, "in the validation after step 6");
  expect_stopped(Moment::step, 1, "after step 7");
  EXPECT_EQ(read_result(config_.log.dir).validation_bits.size(), 1u) << "the pending validation was not made";
  expect_stopped(Moment::validation, 2, "in the validation after step 12");
  train_on(1, 1, config_);
  EXPECT_EQ(outcome(), undisturbed);
}

TEST_F(Stopping, APendingValidationThatNobodyWantsAnyMoreDoesNotKeepTheRunFromEnding) {
  expect_stopped(Moment::validation, 1, "in the validation after step 6");
  config_.validation.eval_every = -1;
  EXPECT_EQ(train_on(2, 1, config_).loss_bits.size(), 12u);
}

TEST_F(Stopping, WithinASampleItStopsAtTheNextToken) { expect_stopped(Moment::sample, 3, "after step 6"); }

TEST_F(Stopping, TheSecondInterruptEndsTheProcess) {
  const auto interrupt_twice = [] {
    listen_for_stop_requests();
    std::raise(SIGTERM);
    std::raise(SIGTERM);
    std::raise(SIGINT);
    if (stop_was_requested()) std::raise(SIGINT);
  };
  EXPECT_EXIT(interrupt_twice(), testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace lockstep
