// SPDX-License-Identifier: Apache-2.0
// Runs that fail while something of theirs hangs. Each one ends a process of its own.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/error.h"
#include "core/thread_pool.h"
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
  Config config = tiny_config(directory, 1);
  config.train.steps = 5;
  const auto fail = [&] {
    return train_on_threads(1, 1, config, [&](TrainingTask& task) {
      const auto samples = std::make_shared<HangingSamples>(task.training_data, config.train.batch_size);
      task.training_data = samples;
      task.loss = [samples, loss = task.loss](const Tensor& inputs, const Tensor& targets,
                                              const Context& context) {
        if (context.step == 0) return loss(inputs, targets, context);
        samples->wait();
        throw UserError("the cause of the failure");
      };
    });
  };
  EXPECT_EXIT(std::exit(run_program(fail)), testing::ExitedWithCode(2), "error: the cause of the failure\n$");
}

}  // namespace
}  // namespace lockstep
