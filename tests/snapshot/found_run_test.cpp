// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/found_run.h"

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/job/load_job.h"
#include "lockstep/metrics/metrics.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

// The hashes of the data are all that such a run has left of them.
TEST(FindRun, NamesTheDataThatDifferFromThoseOfARunWithoutASnapshot) {
  const TemporaryDirectory directory;
  Job job;
  job.log.dir = directory.path();
  job.text.validation = "held_out.txt";
  const Artifacts artifacts = {{"corpus", "a"}, {"data.validation", "b"}, {"vocabulary", "c"}};
  MetricsWriter(directory / "metrics.jsonl", 0).write({.step = 3});
  write_fingerprint(request_of(job, artifacts));
  const auto differences = [&](const std::string& name, const std::string& value) {
    Artifacts other = artifacts;
    other[name] = value;
    if (value.empty()) other.erase(name);
    const std::optional<FoundRun> found = find_run(request_of(job, other));
    return found ? found->differences : std::vector<std::string>{"no run"};
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(differences("corpus", "a"), Texts());
  EXPECT_EQ(differences("corpus", "other"), Texts{"data.dataset: the corpus differs"});
  EXPECT_EQ(differences("vocabulary", "other"), Texts{"data.dataset: the vocabulary differs"});
  EXPECT_EQ(differences("data.validation", "other"), Texts{"data.validation: its content differs"});
  EXPECT_EQ(differences("data.validation", ""), Texts{"data.validation = held_out.txt there, none here"});
  EXPECT_EQ(differences("vocabulary", ""), Texts{"data.dataset: the data differ"});
}

}  // namespace
}  // namespace lockstep
