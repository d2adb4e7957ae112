// SPDX-License-Identifier: Apache-2.0
// What a run records besides its metrics: events and the spans of its steps.
#include <algorithm>
#include <filesystem>
#include <set>

#include "lockstep/events/events.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

TEST(RunEvents, AreSnapshotsAndPeaksOfMemory) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 2);
  job.length.steps = 6;
  job.snapshots.path = NamedPlace::in_log_folder;
  job.snapshots.every_steps = 3;
  train_on(2, 1, job);
  std::set<std::pair<int64_t, std::string>> snapshots;
  int64_t peaks = 0;
  for (const RunEvent& event : read_events(job.log.dir)) {
    if (event.what == "snapshot") {
      EXPECT_EQ(event.facts.at("problem"), "");
      EXPECT_GE(std::stod(event.facts.at("seconds")), 0.0);
      snapshots.emplace(event.step, event.facts.at("kind"));
    }
    if (event.what != "memory") continue;
    EXPECT_GT(std::stoll(event.facts.at("total")), 0);
    EXPECT_TRUE(event.facts.contains("gradients"));
    ++peaks;
  }
  EXPECT_EQ(snapshots,
            (std::set<std::pair<int64_t, std::string>>{{3, "newest"}, {6, "newest"}, {6, "best"}}));
  EXPECT_GE(peaks, 1);
}

TEST(RunEvents, SpansOfStepsChangeNoBit) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 2);
  job.length.steps = 8;
  const RunResult plain = train_on(2, 1, job);
  EXPECT_FALSE(std::filesystem::exists(job.log.dir + "/trace-rank0.json"));
  job.log.trace = LogTrace::steps;
  EXPECT_EQ(train_on(2, 1, job), plain);
  std::map<std::string, int> spans;
  const auto trace = nlohmann::json::parse(read_text(job.log.dir + "/trace-rank0.json"));
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X") ++spans[event["name"]];
  for (const char* name : {"wait for data", "forward", "backward", "bucket", "wait for buckets",
                           "exchange of the norm", "update", "gather", "load", "step"})
    EXPECT_GE(spans[name], 6) << name;
}

}  // namespace
}  // namespace lockstep
