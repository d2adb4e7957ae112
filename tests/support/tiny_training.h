// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <gtest/gtest.h>

#include "comm/local_communicator.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace lockstep {

/// A scope that keeps the progress of many small runs out of the tests' output.
struct QuietStderr {
  QuietStderr() { testing::internal::CaptureStderr(); }
  ~QuietStderr() { testing::internal::GetCapturedStderr(); }
};

/// Trains as programs do, on ranks that are threads of this process. `change` may alter rank 0's task.
/// Returns rank 0's exit code.
inline int train_on_threads(int ranks, int threads, const Config& settings,
                            const std::function<void(TrainingTask&)>& change = {}) {
  int code = 0;
  run_ranks(ranks, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    Config config = settings;
    config.train.threads = threads;
    settle(config, world);
    const LanguageData data = config.data.dataset.ends_with(".jsonl") ? short_example_data(config, 100)
                                                                      : short_language_data(config, 100);
    const auto model = make_gpt(config, data.vocabulary_size);
    TrainingTask task = language_task(config, *model, data);
    if (change && world.is_first()) change(task);
    const int code_of_rank = train(config, world, task);
    if (world.is_first()) code = code_of_rank;
  });
  return code;
}

/// Trains on threads and expects exit code 0. Returns the result of the run.
inline RunResult train_on(int ranks, int threads, const Config& config) {
  const QuietStderr quiet;
  EXPECT_EQ(train_on_threads(ranks, threads, config), 0);
  return read_result(config.log.dir);
}

}  // namespace lockstep
