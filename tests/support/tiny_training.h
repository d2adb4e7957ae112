// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/train/trainer.h"
#include "support/tiny_run.h"

namespace lockstep {

/// A scope that keeps the progress of many small runs out of the tests' output.
struct QuietStderr {
  QuietStderr() { testing::internal::CaptureStderr(); }
  ~QuietStderr() { testing::internal::GetCapturedStderr(); }
};

/// Returns the settings of a job in which these keys are left open.
inline Settings settings_of(const Job& job, const std::vector<std::string>& open) {
  const Settings all = job_keys().settings_of(job);
  SettingLayer set;
  for (const Key& key : job_keys().keys())
    if (std::ranges::count(open, key.name) == 0) set.push_back({key.name, all[key.name], ""});
  Settings settings(job_keys());
  for (const std::string& key : open) settings.replace(key, all[key]);
  settings.add(set);
  return settings;
}

/// Trains as programs do, on ranks that are threads of this process. `change` may alter rank 0's task. Keys
/// in `open` are not set. Returns rank 0's exit code.
inline int train_on_threads(int ranks, int threads, const Job& settings,
                            const std::function<void(AlteredTask&)>& change = {},
                            const std::vector<std::string>& open = {}) {
  int code = 0;
  run_ranks(ranks, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    Job job = settings;
    job.compute.threads = threads;
    job = resolve(settings_of(job, open), world);
    const LanguageData data =
        has_examples(job) ? short_example_data(job, 100) : short_language_data(job, 100);
    const auto model = make_model(job, data.vocabulary_size);
    const LanguageTask original(job, *model, data);
    AlteredTask task(original);
    if (change && world.is_first()) change(task);
    const int code_of_rank = train(job, world, task);
    if (world.is_first()) code = code_of_rank;
  });
  return code;
}

/// Trains on threads and expects exit code 0. Returns the result of the run.
inline RunResult train_on(int ranks, int threads, const Job& job) {
  const QuietStderr quiet;
  EXPECT_EQ(train_on_threads(ranks, threads, job), 0);
  return read_result(job.log.dir);
}

}  // namespace lockstep
