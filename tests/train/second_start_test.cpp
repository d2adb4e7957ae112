// SPDX-License-Identifier: Apache-2.0
// Starts in a folder that already holds a run.
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdlib.h>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/version.h"
#include "lockstep/metrics/metrics.h"
#include "lockstep/models/llama/llama_options.h"
#include "lockstep/train/run_log.h"
#include "tests/support/config_support.h"
#include "tests/support/load_snapshot.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class SecondStart : public testing::Test {
 protected:
  SecondStart() {
    config_.length.steps = 6;
    config_.snapshots = SnapshotOptions{.every_steps = 2, .keep = 10};
  }

  std::string in_run(const std::string& name) const { return directory_ / ("run/" + name); }

  /// Makes the run look as if it was killed after its fourth step.
  void cut_after_fourth_step() const { fs::remove_all(in_run("snapshots/step-00000006")); }

  std::string said(const Job& job, const std::vector<std::string>& open = {}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(train_on_threads(1, 1, job, {}, open), 0);
    return testing::internal::GetCapturedStderr();
  }

  TemporaryDirectory directory_;
  Job config_ = tiny_config(directory_, 2);
};

TEST_F(SecondStart, AFinishedRunIsRepeatedInWordsAndNotTouched) {
  const RunResult first = train_on(2, 1, config_);
  const auto metrics_time = fs::last_write_time(in_run("metrics.jsonl"));
  config_.validation.eval_every = 1;  // a setting that does not change the bits
  expect_contains(said(config_), {"finished", "done: 6 steps, parameters " + first.parameters_hash,
                                  "generate --snapshot " + config_.log.dir, "--fresh"});
  EXPECT_EQ(fs::last_write_time(in_run("metrics.jsonl")), metrics_time);
  EXPECT_FALSE(fs::exists(directory_ / "run.1"));
}

TEST_F(SecondStart, AFinishedRunWithoutSnapshotsStaysToo) {
  config_.snapshots.path = NamedPlace::none;
  const RunResult first = train_on(2, 1, config_);
  config_.snapshots.path = NamedPlace::in_log_folder;
  expect_contains(said(config_), {"finished", first.parameters_hash});
  EXPECT_FALSE(fs::exists(in_run("snapshots/step-00000006")));
  expect_contains(user_error([&] { load_snapshot(config_.log.dir); }), {config_.log.dir, "none"});
}

TEST_F(SecondStart, AFinishedRunMendsItsLastLine) {
  const RunResult first = train_on(2, 1, config_);
  // The run looks as if it was killed after its last snapshot, while it wrote its last line.
  fs::resize_file(in_run("metrics.jsonl"), fs::file_size(in_run("metrics.jsonl")) - 9);
  EXPECT_EQ(train_on(1, 1, config_), first);
}

TEST_F(SecondStart, AnUnfinishedRunGoesOnAndSaysHowToStartAnew) {
  const RunResult undisturbed = train_on(2, 1, config_);
  cut_after_fourth_step();
  expect_contains(said(config_), {"resuming after step 4", "--fresh"});
  EXPECT_EQ(read_result(config_.log.dir), undisturbed);
}

TEST_F(SecondStart, AnotherScopeOfBitsIsSaidAndResumed) {
  using Json = nlohmann::ordered_json;
  train_on(2, 1, config_);
  const std::string file = in_run("snapshots/step-00000004/state.json");
  Json sealed = Json::parse(read_text(file));
  EXPECT_EQ(sealed["state"]["scope"], concat("CPU, arithmetic ", arithmetic_version));
  cut_after_fourth_step();
  EXPECT_EQ(said(config_).find("scope of bits"), std::string::npos);
  for (const auto& [scope, words] :
       {std::pair("CPU, arithmetic 1", "CPU, arithmetic 1. This run resumes in: CPU, "),
        std::pair("", "an earlier version of this program")}) {
    cut_after_fourth_step();
    sealed["state"]["scope"] = scope;
    sealed["checksum"] = hash_text(hash_of(sealed["state"].dump()));
    write_text(file, sealed.dump(2) + "\n");
    expect_contains(said(config_), {"the snapshot of step 4 was written in another scope of bits: ", words,
                                    "resuming after step 4"});
  }
}

TEST_F(SecondStart, TheScopeOfNativeSumsHasTheRanks) {
  config_.dist.reduction = Reduction::native;
  EXPECT_EQ(scope_of_bits(config_, World::alone()),
            concat("CPU, arithmetic ", arithmetic_version, ", native sums of 1 rank"));
}

TEST_F(SecondStart, AFinishedRunOfAnotherMeaningMovesWhole) {
  const RunResult first = train_on(2, 1, config_);
  config_.compute.seed = 5;
  const std::string words = said(config_);
  expect_contains(words, {config_.log.dir, directory_ / "run.1"});
  EXPECT_EQ(read_result(directory_ / "run.1"), first);
  EXPECT_TRUE(fs::exists(directory_ / "run.1/snapshots/step-00000006/state.json"));
  EXPECT_NE(read_result(config_.log.dir).parameters_hash, first.parameters_hash);
  config_.compute.seed = 6;
  said(config_);
  EXPECT_TRUE(fs::exists(directory_ / "run.2/metrics.jsonl"));
}

struct Refusal {
  const char* name;
  std::function<void(Job&)> change;
  std::string said;
};

TEST_F(SecondStart, AnUnfinishedRunOfAnotherMeaningIsNamedByKeyAndStays) {
  train_on(1, 1, config_);
  cut_after_fourth_step();
  const std::string settings = read_text(in_run("config.ini"));
  const std::string metrics = read_text(in_run("metrics.jsonl"));
  const Refusal refusals[] = {
      {"seed", [](Job& c) { c.compute.seed = 5; }, "train.seed = 1337 there, 5 here"},
      {"replicas", [](Job& c) { c.dist.replicas = 3; }, "dist.replicas = 2 there, 3 here"},
      {"batch", [](Job& c) { c.batches.batch_size = 1; }, "train.batch_size = 2 there, 1 here"},
      {"model", [](Job& c) { c.model.n_embd = 32; }, "model.n_embd = 16 there, 32 here"},
  };
  for (const Refusal& refusal : refusals) {
    Job changed = config_;
    refusal.change(changed);
    expect_contains(user_error([&] { train_on(1, 1, changed); }),
                    {refusal.said, "at step 4", "--fresh", directory_ / "run.1", "log.dir"});
  }
  EXPECT_EQ(read_text(in_run("config.ini")), settings);
  EXPECT_EQ(read_text(in_run("metrics.jsonl")), metrics);
  EXPECT_FALSE(fs::exists(directory_ / "run.1"));
}

TEST_F(SecondStart, SettingsThatCannotBeReadAreNamedByTheirFile) {
  train_on(1, 1, config_);
  cut_after_fourth_step();
  fs::remove(in_run("config.ini"));
  fs::create_directory(in_run("config.ini"));
  expect_contains(user_error([&] { train_on(1, 1, config_); }),
                  {"its settings cannot be read: " + in_run("config.ini") + " cannot be read"});
}

TEST_F(SecondStart, AnOpenFamilyIsInheritedAndAnotherOneNamed) {
  config_.model.family = "llama";
  config_.model.own["llama"] = LlamaOptions{.n_kv_head = 1};
  const RunResult undisturbed = train_on(2, 1, config_);
  cut_after_fourth_step();
  Job other = config_;
  other.model.family = "gpt2";
  expect_contains(said(other, {"model.family"}), {"model.family = llama", "resuming after step 4"});
  EXPECT_EQ(read_result(config_.log.dir), undisturbed);
  cut_after_fourth_step();
  other.model.own.clear();
  expect_contains(user_error([&] { train_on_threads(1, 1, other, {}, {"model.n_kv_head"}); }),
                  {"model.family = llama there, gpt2 here"});
}

TEST_F(SecondStart, FreshMovesAnyRunAndARestartNone) {
  const RunResult first = train_on(1, 1, config_);
  cut_after_fourth_step();
  config_.snapshots.resume = Resume::never;
  ::setenv("LOCKSTEP_RESTART_COUNT", "1", 1);
  expect_contains(said(config_), {"resuming after step 4"});
  config_.compute.seed = 5;
  EXPECT_NE(user_error([&] { train_on(1, 1, config_); }).find("train.seed"), std::string::npos);
  ::unsetenv("LOCKSTEP_RESTART_COUNT");
  EXPECT_FALSE(fs::exists(directory_ / "run.1"));
  train_on(1, 1, config_);
  EXPECT_EQ(read_result(directory_ / "run.1"), first);
  EXPECT_TRUE(fs::exists(directory_ / "run.1/snapshots/step-00000006/state.json"));
}

TEST_F(SecondStart, SnapshotsElsewhereMoveAndStayWithTheirRun) {
  config_.snapshots.path = directory_ / "elsewhere";
  train_on(1, 1, config_);
  EXPECT_EQ(load_snapshot(config_.log.dir).step, 6) << "a run's folder says where its snapshots are";
  // The snapshots are of another folder's run. Only a person can decide.
  Job other = config_;
  other.log.dir = directory_ / "other";
  other.compute.seed = 5;
  EXPECT_NE(user_error([&] { train_on(1, 1, other); }).find("train.seed"), std::string::npos);
  // Otherwise the metrics would be truncated and the snapshots ignored.
  fs::remove_all(directory_ / "elsewhere/step-00000006");
  fs::resize_file(in_run("metrics.jsonl"), fs::file_size(in_run("metrics.jsonl")) - 9);
  Job forgetful = config_;
  forgetful.snapshots.path = NamedPlace::in_log_folder;
  expect_contains(user_error([&] { train_on(1, 1, forgetful); }), {config_.snapshot_place(), "resumes"});
  train_on(1, 1, config_);
  config_.compute.seed = 5;
  train_on(1, 1, config_);
  EXPECT_TRUE(fs::exists(directory_ / "elsewhere.1/step-00000006/state.json"));
  EXPECT_TRUE(fs::exists(directory_ / "run.1/metrics.jsonl"));
}

TEST_F(SecondStart, OtherDataAreAnotherMeaningAlsoWithoutASnapshot) {
  config_.snapshots.path = NamedPlace::none;
  const RunResult first = train_on(1, 1, config_);
  const auto train_on_other_data = [&] {
    const QuietStderr quiet;
    train_on_threads(1, 1, config_, [](AlteredTask& task) { task.given.artifacts["corpus"] = "other"; });
  };
  fs::resize_file(in_run("metrics.jsonl"), fs::file_size(in_run("metrics.jsonl")) - 9);
  expect_contains(user_error(train_on_other_data), {"data.dataset", "at step 6"});
  train_on(1, 1, config_);
  train_on_other_data();
  EXPECT_EQ(read_result(directory_ / "run.1"), first);
}

TEST_F(SecondStart, OtherValidationDataAreAnotherMeaning) {
  const auto train_with = [&](const char* hash) {
    const QuietStderr quiet;
    Job job = config_;
    if (hash != nullptr) job.text.validation = "valid.txt";
    train_on_threads(1, 1, job, [&](AlteredTask& task) {
      if (hash != nullptr) task.given.artifacts[validation_artifact] = hash;
    });
  };
  train_with("one");
  const RunResult first = read_result(config_.log.dir);
  cut_after_fourth_step();
  expect_contains(user_error([&] { train_with("other"); }), {"data.validation: its content differs"});
  expect_contains(user_error([&] { train_with(nullptr); }), {"data.validation = valid.txt there, none here"});
  train_with("one");
  EXPECT_EQ(read_result(config_.log.dir), first);
  EXPECT_FALSE(fs::exists(directory_ / "run.1"));
}

TEST_F(SecondStart, SnapshotsOfAnEarlierMomentElsewhereDoNotCutARun) {
  config_.snapshots.path = directory_ / "elsewhere";
  train_on(1, 1, config_);
  fs::remove_all(directory_ / "elsewhere/step-00000006");
  fs::remove_all(directory_ / "elsewhere/step-00000004");
  config_.log.dir = directory_ / "second";
  config_.snapshots.path = NamedPlace::in_log_folder;
  train_on(1, 1, config_);
  fs::remove_all(directory_ / "second/snapshots/step-00000006");
  fs::resize_file(directory_ / "second/metrics.jsonl",
                  fs::file_size(directory_ / "second/metrics.jsonl") - 9);
  config_.snapshots.path = directory_ / "elsewhere";
  expect_contains(user_error([&] { train_on(1, 1, config_); }), {directory_ / "second/snapshots", "resumes"});
}

TEST_F(SecondStart, OneFolderForAllIsOnePlace) {
  config_.snapshots.path = config_.log.dir + "/.";
  const RunResult first = train_on(1, 1, config_);
  EXPECT_TRUE(fs::exists(in_run("step-00000006/state.json")));
  config_.compute.seed = 5;
  train_on(1, 1, config_);
  EXPECT_EQ(read_result(directory_ / "run.1"), first);
}

TEST_F(SecondStart, AnEarlierStartThatStillRunsWritesNoMoreMetrics) {
  const RunResult undisturbed = train_on(1, 1, config_);
  cut_after_fourth_step();
  // It was stopped when it had written the steps from which the later start resumes.
  MetricsWriter lingering(in_run("metrics.jsonl"), 4,
                          [] { throw Error("the folder belongs to another start"); });
  EXPECT_EQ(train_on(1, 1, config_), undisturbed);
  EXPECT_THROW(lingering.write({.step = 5}), Error);
  EXPECT_EQ(read_result(config_.log.dir), undisturbed);
}

TEST_F(SecondStart, WithoutASnapshotYetItBeginsAgain) {
  const RunResult undisturbed = train_on(1, 1, config_);
  fs::remove_all(in_run("snapshots"));
  fs::resize_file(in_run("metrics.jsonl"), fs::file_size(in_run("metrics.jsonl")) - 9);
  expect_contains(said(config_), {"no snapshot", "first step"});
  EXPECT_EQ(read_result(config_.log.dir), undisturbed);
}

TEST_F(SecondStart, GoesOnAtAnotherNumberOfRanksWhereNobodySetTheReplicas) {
  config_.dist.replicas = 0;
  const RunResult undisturbed = train_on(4, 1, config_);
  for (const int ranks : {2, 3}) {
    cut_after_fourth_step();
    // Two ranks resume on a machine that has only the snapshots. Three ranks resume where the metrics are
    // there, too.
    if (ranks == 2) fs::remove(in_run("metrics.jsonl"));
    EXPECT_NE(user_error([&] { train_on(5, 1, config_); }).find("dist.replicas = 4"), std::string::npos);
    EXPECT_EQ(train_on(ranks, 1, config_).parameters_hash, undisturbed.parameters_hash) << ranks << " ranks";
  }
}

TEST_F(SecondStart, WhatNobodySetsComesFromTheRunThatGoesOn) {
  config_.compute.seed = 5;
  config_.model.n_embd = 32;
  config_.optimizer.grad_clip = 0.25;
  const RunResult undisturbed = train_on(1, 1, config_);
  cut_after_fourth_step();
  Job second = config_;
  second.compute.seed = 1337;
  second.model.n_embd = 16;
  const std::vector<std::string> open = {"train.seed", "model.n_embd"};
  expect_contains(said(second, open), {"train.seed = 5", "model.n_embd = 32", "resuming after step 4"});
  EXPECT_EQ(read_result(config_.log.dir), undisturbed);
  // A setting that was set is kept. A start of another run takes no settings.
  cut_after_fourth_step();
  fs::resize_file(in_run("metrics.jsonl"), fs::file_size(in_run("metrics.jsonl")) - 9);
  second.optimizer.grad_clip = 0.5;
  const std::string refused = user_error([&] {
    const QuietStderr quiet;
    train_on_threads(1, 1, second, {}, open);
  });
  expect_contains(refused, {"train.grad_clip = 0.25 there, 0.5 here"});
  EXPECT_EQ(refused.find("train.seed"), std::string::npos);
  train_on(1, 1, config_);
  train_on(1, 1, second);
  EXPECT_EQ(read_result(directory_ / "run.1"), undisturbed);
  expect_contains(read_text(in_run("config.ini")), {"seed = 1337", "n_embd = 16"});
}

TEST_F(SecondStart, ARunIsExtendedWithTheBitsThatItHad) {
  const RunResult first = train_on(2, 1, config_);
  config_.length.steps = 9;
  expect_contains(said(config_), {"resuming after step 6", "train.decay_steps = 6"});
  const RunResult extended = read_result(config_.log.dir);
  ASSERT_EQ(extended.loss_bits.size(), 9u);
  EXPECT_TRUE(std::equal(first.loss_bits.begin(), first.loss_bits.end(), extended.loss_bits.begin()));
  EXPECT_NE(read_text(in_run("config.ini")).find("decay_steps = 6"), std::string::npos);
  // The result equals that of a run with these steps from the start.
  Job long_run = config_;
  long_run.log.dir = directory_ / "long";
  long_run.schedule.decay_steps = 6;
  EXPECT_EQ(train_on(1, 1, long_run).parameters_hash, extended.parameters_hash);
  expect_contains(said(config_), {"finished", extended.parameters_hash});
  // Fewer steps mean another run, or a mistake.
  fs::remove_all(in_run("snapshots/step-00000009"));
  fs::remove_all(in_run("snapshots/step-00000008"));
  fs::resize_file(in_run("metrics.jsonl"), fs::file_size(in_run("metrics.jsonl")) - 9);
  config_.length.steps = 5;
  expect_contains(user_error([&] { train_on(1, 1, config_); }),
                  {"train.steps = 5 here, but 6 are done there", "--fresh"});
}

TEST_F(SecondStart, AnExtendedRunWithoutSnapshotsIsNotCut) {
  config_.snapshots.path = NamedPlace::none;
  const RunResult first = train_on(1, 1, config_);
  config_.length.steps = 9;
  train_on(1, 1, config_);
  EXPECT_EQ(read_result(directory_ / "run.1"), first);
}

TEST_F(SecondStart, TheSameDataMayComeFromAnotherPlace) {
  const RunResult undisturbed = train_on(1, 1, config_);
  cut_after_fourth_step();
  config_.text.dataset = "/mnt/renamed";  // the task's artifacts identify its contents
  EXPECT_EQ(train_on(1, 1, config_), undisturbed);
}

TEST_F(SecondStart, RequiredResumeNeedsASnapshot) {
  config_.snapshots.resume = Resume::required;
  expect_contains(user_error([&] { train_on(1, 1, config_); }), {"snapshot.resume = required", "snapshots"});
}

TEST_F(SecondStart, WithOnlyDamagedSnapshotsItDoesNotStartOver) {
  config_.snapshots.every_steps = 0;
  train_on(1, 1, config_);
  const std::string state = in_run("snapshots/step-00000006/state.json");
  write_text(state, "{}");
  expect_contains(user_error([&] { train_on(1, 1, config_); }),
                  {"snapshot.path", "state.json", "damaged", "--fresh"});
  EXPECT_EQ(read_text(state), "{}") << "it must not be deleted";
}

TEST_F(SecondStart, APlaceThatCannotBeWrittenEndsTheRunBeforeItsFirstStep) {
  config_.snapshots.path = "/proc/snapshots";
  expect_contains(user_error([&] { train_on(2, 1, config_); }), {"snapshot.path", "/proc/snapshots"});
  EXPECT_FALSE(fs::exists(in_run("metrics.jsonl")));
  // The snapshots need more space than any disk has. The test asks for many snapshots instead of making a
  // model of 2^40 bytes.
  config_.snapshots.path = NamedPlace::in_log_folder;
  config_.snapshots.keep = int64_t{1} << 50;
  expect_contains(user_error([&] { train_on(1, 1, config_); }), {"snapshot.path", "free", "snapshot.keep"});
}

}  // namespace
}  // namespace lockstep
