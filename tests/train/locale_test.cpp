// SPDX-License-Identifier: Apache-2.0
// A library user may set the program's locale. Names, files and bits of a run do not depend on it.
#include <filesystem>
#include <map>

#include "lockstep/core/file.h"
#include "tests/support/foreign_locale.h"
#include "tests/support/tiny_training.h"

namespace lockstep::train_locale_test {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  RunResult result;
  std::map<std::string, std::string> files;  ///< [path in the folder], the bytes of files without times
};

/// Trains to step 1,002 and then resumes for one more step.
Outcome outcome_of(Job job) {
  fs::remove_all(job.log.dir);
  train_on(1, 1, job);
  ++job.length.steps;
  Outcome outcome{.result = train_on(1, 1, job), .files = {}};
  for (const auto& entry : fs::recursive_directory_iterator(job.log.dir)) {
    const std::string name = fs::relative(entry.path(), job.log.dir).string();
    std::string& bytes = outcome.files[name];  // a folder has none
    const std::string ending = entry.path().extension();
    const bool has_times =
        ending == ".jsonl" || ending == ".log" || ending == ".bin" || name.ends_with("state.json");
    if (entry.is_regular_file() && !has_times) bytes = read_file(entry.path()).value();
  }
  return outcome;
}

TEST(RunLocale, DoesNotShowInNamesFilesOrBits) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.length.steps = 1002;
  job.schedule.decay_steps = 1002;
  job.batches.batch_size = 1;
  job.schedule.learning_rate = 0.00125;
  job.validation.eval_every = 1001;
  job.snapshots = {.every_steps = 1002, .keep = 10};
  const Outcome expected = outcome_of(job);
  EXPECT_TRUE(expected.files.contains("snapshots/step-00001002/model.safetensors"));
  EXPECT_TRUE(expected.files.contains("config.ini"));
  const ForeignLocale foreign;
  const Outcome found = outcome_of(job);
  EXPECT_EQ(found.result, expected.result);
  EXPECT_EQ(found.result.losses.size(), 1003U);
  for (const auto& [name, bytes] : expected.files) {
    ASSERT_TRUE(found.files.contains(name)) << name;
    EXPECT_TRUE(found.files.at(name) == bytes) << name;
  }
  EXPECT_EQ(found.files.size(), expected.files.size());
}

}  // namespace
}  // namespace lockstep::train_locale_test
