// SPDX-License-Identifier: Apache-2.0
#include "train/snapshot_writer.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "tensor/create.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double patient = 60.0;

Snapshot snapshot_of(int64_t step, const Tensor& weight) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.model = {{"weight", weight}};
  snapshot.optimizer = {{"weight.mean", weight}};
  return snapshot;
}

double first_weight(const std::string& path) {
  return to_doubles(load_snapshot(path).model.at(0).tensor).at(0);
}

TEST(SnapshotWriter, WritesWhatTheTensorsHeldWhenItWasCalled) {
  const TemporaryDirectory directory;
  const std::string path = directory / "snapshots";
  SnapshotWriter writer(path, 10);
  // Large enough that writing is under way when the tensor changes.
  const Tensor weight = full({1 << 20}, 0.0);
  for (int64_t step = 1; step <= 4; ++step) {
    fill(weight, static_cast<double>(step));
    writer.save(snapshot_of(step, weight), {.step = true}, patient);
    fill(weight, -1.0);
  }
  EXPECT_EQ(writer.finish(), 4);
  for (int64_t step = 1; step <= 4; ++step)
    EXPECT_EQ(first_weight(path + "/step-0000000" + std::to_string(step)), static_cast<double>(step));
}

TEST(SnapshotWriter, KeepsASnapshotAsWhatItIsFor) {
  const TemporaryDirectory directory;
  const std::string path = directory / "snapshots";
  SnapshotWriter writer(path, 10);
  const Tensor weight = full({3}, 5.0);
  writer.save(snapshot_of(1, weight), {.best = true}, patient);
  EXPECT_EQ(writer.finish(), -1) << "the best one is not there to go on from";
  EXPECT_FALSE(fs::exists(path + "/step-00000001"));
  EXPECT_EQ(first_weight(path + "/best"), 5.0);
  writer.save(snapshot_of(2, weight), {.step = true, .best = true}, patient);
  EXPECT_EQ(writer.finish(), 2);
  EXPECT_TRUE(fs::exists(path + "/step-00000002"));
  EXPECT_EQ(load_snapshot(path + "/best").step, 2);
}

TEST(SnapshotWriter, OneThatCannotBeWrittenIsReportedAndTheNextIsTried) {
  const TemporaryDirectory directory;
  const std::string path = directory / "snapshots";
  write_text(path, "a file where the directory should be");
  SnapshotWriter writer(path, 10);
  const Tensor weight = full({3}, 5.0);
  testing::internal::CaptureStderr();
  writer.save(snapshot_of(1, weight), {.step = true}, patient);
  EXPECT_EQ(writer.finish(), -1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("could not be written"), std::string::npos) << said;
  EXPECT_NE(said.find("training goes on"), std::string::npos) << said;
  fs::remove(path);
  writer.save(snapshot_of(2, weight), {.step = true}, patient);
  EXPECT_EQ(writer.finish(), 2);
}

TEST(SnapshotWriter, LeavesOneOutRatherThanWaitTooLongForTheOneBefore) {
  const TemporaryDirectory directory;
  const std::string path = directory / "snapshots";
  SnapshotWriter writer(path, 10);
  const Tensor weight = full({1 << 24}, 5.0);
  writer.save(snapshot_of(1, weight), {.step = true}, patient);
  testing::internal::CaptureStderr();
  writer.save(snapshot_of(2, weight), {.step = true}, 0.0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("no snapshot of step 2: that of step 1 is still being written"), std::string::npos)
      << said;
  EXPECT_EQ(writer.finish(), 1);
  EXPECT_FALSE(fs::exists(path + "/step-00000002"));
}

}  // namespace
}  // namespace lockstep
