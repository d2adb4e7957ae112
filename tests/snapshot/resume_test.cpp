// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <gtest/gtest.h>
#include <map>

#include "lockstep/snapshot/run_folder.h"
#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/tensor/create.h"
#include "tests/support/config_support.h"
#include "tests/support/held_tensors.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns distinct numbers.
Tensor count_from(double first, const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(static_cast<float>(first + static_cast<double>(i)));
  return from_values(values, shape);
}

Snapshot counted(int64_t step) {
  return {.step = step,
          .optimizer_steps = step,
          .best_validation_loss = {},
          .configuration = "[train]\nsteps = 100\n",
          .artifacts = {},
          .matmul_plans = ""};
}

/// Returns tensors that are larger than the chunks in which files are read.
std::vector<NamedTensor> counted_tensors(double first) {
  return {{"large", count_from(first, {1500, 1500})}, {"small", count_from(first, {3})}};
}

void save_counted(SnapshotStore& store, const Snapshot& snapshot) {
  const ParameterSpace space(counted_tensors(static_cast<double>(snapshot.step)));
  save_snapshot(store, snapshot, SpaceTensors(space, nullptr, 1));
}

TEST(Restore, EveryRankGetsWhatRankZeroReads) {
  const TemporaryDirectory directory;
  const Snapshot snapshot = counted(7);
  SnapshotStore store(directory.path(), 1);
  save_counted(store, snapshot);
  run_ranks(3, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    std::vector<NamedTensor> parameters = {{"small", zeros({3})}, {"large", zeros({1500, 1500})}};
    const ParameterSpace space(parameters);
    SpaceTensors tensors(space, nullptr, 3);
    const StoredSnapshot found = find_snapshot(directory.path());
    const StoredSnapshot stored =
        world.is_first() ? found : StoredSnapshot(found.text(), nullptr, "elsewhere");
    restore(stored, world, tensors);
    EXPECT_EQ(to_doubles(parameters[0].tensor), to_doubles(counted_tensors(7)[1].tensor));
    EXPECT_EQ(to_doubles(parameters[1].tensor), to_doubles(counted_tensors(7)[0].tensor));
    for (const NamedTensor& wrong : {NamedTensor{"other", zeros({3})}, NamedTensor{"small", zeros({4})}}) {
      const ParameterSpace other({wrong});
      SpaceTensors wrong_tensors(other, nullptr, 3);
      expect_contains(user_error([&] { restore(stored, world, wrong_tensors); }), {wrong.name});
    }
  });
}

TEST(Restore, ASnapshotThatIsDamagedAfterItWasFoundGivesWayToTheOneBefore) {
  const TemporaryDirectory directory;
  Job job;
  job.length.steps = 100;
  job.log.dir = directory / "run";
  job.snapshots.path = directory / "run/snapshots";
  SnapshotStore store(job.snapshot_place(), 5);
  for (const int64_t step : {3, 5}) {
    Snapshot snapshot = counted(step);
    snapshot.configuration = to_ini(job);
    save_counted(store, snapshot);
  }
  const auto damage = [&](const char* step) {
    std::fstream file(job.snapshot_place() + step, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(9'000'000);
    file.put('\x7f');
  };
  const QuietStderr quiet;
  run_ranks(2, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    const Artifacts artifacts;
    std::vector<NamedTensor> parameters = {{"small", zeros({3})}, {"large", zeros({1500, 1500})}};
    const ParameterSpace space(parameters);
    SpaceTensors tensors(space, nullptr, 2);
    RunFolder folder(request_of(job, artifacts), world);
    EXPECT_EQ(folder.snapshot()->step, 5);
    on_first_rank(world, [&] { damage("/step-00000005/model.safetensors"); });
    folder.load(tensors);
    EXPECT_EQ(folder.snapshot()->step, 3);
    EXPECT_EQ(to_doubles(parameters[1].tensor), to_doubles(counted_tensors(3)[0].tensor));
    on_first_rank(world, [&] { damage("/step-00000003/model.safetensors"); });
    expect_contains(user_error([&] { folder.load(tensors); }),
                    {"step-00000003/model.safetensors", "damaged", "no valid snapshot is left", "--fresh"});
  });
}

/// A run of six steps with snapshots of steps 2, 4 and 6 that gets damaged tensors.
class DamagedTensors : public testing::Test {
 protected:
  void damage(int step, const std::string& file) const {
    const std::string path = concat(config_.snapshot_place(), "/step-0000000", step, "/", file);
    std::string bytes = read_text(path);
    bytes.back() ^= 2;
    write_text(path, bytes);
  }
  /// Returns the files in a folder of the run by their paths, except logs, flight records and the marks of
  /// its owner.
  std::map<std::string, std::string> files(const std::string& folder = "") const {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::recursive_directory_iterator(config_.log.dir + "/" + folder)) {
      const std::string path = entry.path().lexically_relative(config_.log.dir);
      if (entry.is_regular_file() && path.find(".owner") == std::string::npos && !path.ends_with(".log") &&
          !path.ends_with(".bin"))
        contents[path] = read_text(entry.path());
    }
    return contents;
  }
  /// Trains and returns what was logged.
  std::string train_aloud(int ranks) const {
    testing::internal::CaptureStderr();
    EXPECT_EQ(train_on_threads(ranks, 1, config_), 0);
    return testing::internal::GetCapturedStderr();
  }

  TemporaryDirectory directory_;
  Job config_ = [this] {
    Job job = tiny_config(directory_, 2);
    job.length.steps = 6;
    job.validation.eval_every = 1;
    job.snapshots = SnapshotOptions{.path = directory_ / "run/snapshots", .every_steps = 2, .keep = 3};
    return job;
  }();
};

TEST_F(DamagedTensors, GiveWayToTheSnapshotBeforeAndLeaveTheSameBits) {
  train_on(1, 1, config_);
  fs::copy(config_.log.dir, directory_ / "six", fs::copy_options::recursive);
  config_.length.steps = 10;
  const RunResult undisturbed = train_on(1, 1, config_);
  const auto at_8 = files("snapshots/step-00000008"), at_10 = files("snapshots/step-00000010");
  for (const int ranks : {1, 2}) {
    fs::remove_all(config_.log.dir);
    fs::copy(directory_ / "six", config_.log.dir, fs::copy_options::recursive);
    damage(6, ranks == 1 ? model_file : optimizer_file);
    expect_contains(train_aloud(ranks),
                    {concat("step-00000006/", ranks == 1 ? model_file : optimizer_file, " is damaged"),
                     "; trying an older snapshot", "resuming after step 4 instead"});
    EXPECT_EQ(read_result(config_.log.dir), undisturbed) << ranks << " ranks";
    EXPECT_TRUE(files("snapshots/step-00000008") == at_8) << ranks << " ranks";
    EXPECT_TRUE(files("snapshots/step-00000010") == at_10) << ranks << " ranks";
  }
}

TEST_F(DamagedTensors, DoNotProveThatARunHasFinished) {
  const RunResult undisturbed = train_on(1, 1, config_);
  const std::map<std::string, std::string> expected = files("snapshots/step-00000006");
  damage(6, model_file);
  expect_contains(train_aloud(2), {"step-00000006/model.safetensors is damaged", "resuming after step 4"});
  EXPECT_EQ(read_result(config_.log.dir), undisturbed);
  EXPECT_TRUE(files("snapshots/step-00000006") == expected);
  expect_contains(train_aloud(2), {"already finished"});
}

TEST_F(DamagedTensors, OfAllSnapshotsRefuseTheRunAndLoseNothing) {
  train_on(1, 1, config_);
  for (const int step : {2, 4, 6}) damage(step, optimizer_file);
  const std::map<std::string, std::string> before = files();
  for (const int64_t steps : {6, 10}) {
    config_.length.steps = steps;
    expect_contains(user_error([&] { train_on(2, 1, config_); }),
                    {concat("snapshot.path: no valid snapshot is left in ", config_.snapshot_place(), ": "),
                     "step-00000002/optimizer.safetensors is damaged",
                     "; --fresh moves it away and starts from scratch"});
    EXPECT_TRUE(files() == before) << steps << " steps";
  }
}

}  // namespace
}  // namespace lockstep
