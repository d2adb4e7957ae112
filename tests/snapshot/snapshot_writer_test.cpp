// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <thread>

#include "lockstep/job/load_job.h"
#include "lockstep/tensor/create.h"
#include "lockstep/train/run_snapshots.h"
#include "tests/support/aws.h"
#include "tests/support/http_server.h"
#include "tests/support/load_snapshot.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double patient = 60.0;

Snapshot snapshot_of(int64_t step) {
  Snapshot snapshot;
  snapshot.step = step;
  return snapshot;
}

/// A writer of the only weight of one rank.
struct OneRank {
  OneRank(const std::string& path, const Shape& shape, double value, std::optional<double> best_loss = {})
      : space({{"weight", full(shape, value)}}),
        writer(world, tensors, {.path = path, .keep = 10, .best_loss = best_loss}) {}

  World world = World::alone();
  ParameterSpace space;
  SpaceTensors tensors{space, nullptr, 1};
  SnapshotWriter writer;
};

double first_weight(const std::string& path) {
  return to_doubles(load_snapshot(path).model.at(0).tensor).at(0);
}

TEST(SnapshotWriter, WritesWhatTheTensorsHeldWhenItWasCalled) {
  const TemporaryDirectory directory;
  const std::string path = directory / "snapshots";
  // The tensor is large enough that it changes while it is being written.
  OneRank rank(path, {1 << 20}, 0.0);
  SnapshotWriter& writer = rank.writer;
  const Tensor& weight = rank.space.values();
  for (int64_t step = 1; step <= 4; ++step) {
    fill(weight, static_cast<double>(step));
    writer.save(snapshot_of(step), {.step = true}, patient);
    fill(weight, -1.0);
  }
  EXPECT_EQ(writer.finish(), 4);
  for (int64_t step = 1; step <= 4; ++step)
    EXPECT_EQ(first_weight(path + "/step-0000000" + std::to_string(step)), static_cast<double>(step));
}

TEST(RunSnapshots, AValidationThatIsNotANumberIsNeverTheBest) {
  const TemporaryDirectory directory;
  Job job;
  job.length.steps = 10;
  job.log.dir = directory / "run";
  job.snapshots.path = directory / "run/snapshots";
  const World world = World::alone();
  const RunFolder folder(request_of(job, {}), world);
  const ParameterSpace space({{"weight", full({1}, 1.0)}});
  const SpaceTensors tensors(space, nullptr, 1);
  RunSnapshots snapshots(job, world, folder, tensors, {}, [] {});
  EXPECT_FALSE(snapshots.is_best(std::nan("")));
  EXPECT_FALSE(snapshots.is_best(HUGE_VAL));
  EXPECT_TRUE(snapshots.is_best(5.0)) << "the first finite loss is the best";
  snapshots.save(snapshot_of(1), {.best = true});
  EXPECT_FALSE(snapshots.is_best(std::nan("")));
  EXPECT_TRUE(snapshots.is_best(4.0));
}

TEST(SnapshotWriter, KeepsASnapshotAsWhatItIsFor) {
  const TemporaryDirectory directory;
  const std::string path = directory / "snapshots";
  OneRank rank(path, {3}, 5.0);
  SnapshotWriter& writer = rank.writer;
  writer.save(snapshot_of(1), {.best = true}, patient);
  EXPECT_EQ(writer.finish(), -1) << "the best snapshot is not for resuming";
  EXPECT_FALSE(fs::exists(path + "/step-00000001"));
  EXPECT_EQ(first_weight(path + "/best"), 5.0);
  writer.save(snapshot_of(2), {.step = true, .best = true}, patient);
  EXPECT_EQ(writer.finish(), 2);
  EXPECT_TRUE(fs::exists(path + "/step-00000002"));
  EXPECT_EQ(load_snapshot(path + "/best").step, 2);
}

TEST(SnapshotWriter, OneThatCannotBeWrittenIsReportedAndTheNextIsTried) {
  const TemporaryDirectory directory;
  const std::string path = directory / "snapshots";
  write_text(path, "a file where the directory should be");
  OneRank rank(path, {3}, 5.0);
  SnapshotWriter& writer = rank.writer;
  testing::internal::CaptureStderr();
  writer.save(snapshot_of(1), {.step = true}, patient);
  EXPECT_EQ(writer.finish(), -1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("could not be written"), std::string::npos) << said;
  EXPECT_NE(said.find("training continues"), std::string::npos) << said;
  fs::remove(path);
  writer.save(snapshot_of(2), {.step = true}, patient);
  EXPECT_EQ(writer.finish(), 2);
}

/// An empty bucket. Its server answers uploads as the test says.
class Bucket {
 public:
  explicit Bucket(HttpServer::Answer answer)
      : server_([answer = std::move(answer)](const std::string& request) {
          return request.starts_with("GET")
                     ? http_reply("200 OK",
                                  "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
                     : answer(request);
        }) {
    forget_aws(home_.path());
    ::setenv("AWS_ENDPOINT_URL", server_.url().c_str(), 1);
    ::setenv("AWS_ACCESS_KEY_ID", "key", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  }
  std::vector<std::string> requests() const { return server_.requests(); }

 private:
  TemporaryDirectory home_;
  HttpServer server_;
};

TEST(SnapshotWriter, LeavesOneOutRatherThanWaitTooLongForTheOneBefore) {
  std::atomic<bool> answers = false;
  const Bucket bucket([&](const std::string&) {
    while (!answers.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return http_reply("200 OK");
  });
  OneRank rank("s3://bucket/run", {3}, 5.0);
  SnapshotWriter& writer = rank.writer;
  writer.save(snapshot_of(1), {.step = true}, patient);
  testing::internal::CaptureStderr();
  writer.save(snapshot_of(2), {.step = true}, 0.0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("skipped the snapshot of step 2: that of step 1 is still being written"),
            std::string::npos)
      << said;
  answers = true;
  EXPECT_EQ(writer.finish(), 1);
  for (const std::string& request : bucket.requests())
    EXPECT_EQ(request.find("step-00000002"), std::string::npos) << request;
}

TEST(SnapshotStore, ABucketThatMayNotBeWrittenIsNoticedByTrying) {
  const Bucket bucket([](const std::string&) { return http_reply("403 Forbidden"); });
  EXPECT_THROW(SnapshotStore("s3://bucket/run", 1).try_to_write(), UserError);
}

TEST(SnapshotWriter, TellsOfNoBestSnapshotThatIsNotThere) {
  const Bucket bucket([](const std::string& request) {
    return http_reply(request.starts_with("PUT /bucket/run/best") ? "403 Forbidden" : "200 OK");
  });
  OneRank rank("s3://bucket/run", {3}, 5.0, 2.5);
  SnapshotWriter& writer = rank.writer;
  Snapshot snapshot = snapshot_of(3);
  snapshot.best_validation_loss = 1.25;
  testing::internal::CaptureStderr();
  writer.save(snapshot, {.step = true, .best = true}, patient);
  EXPECT_EQ(writer.finish(), 3);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("403"), std::string::npos);
  EXPECT_EQ(writer.best_loss(), 2.5);
  bool was_told = false;
  for (const std::string& request : bucket.requests())
    was_told |= request.starts_with("PUT /bucket/run/step-00000003/state.json") &&
                request.find("\"best_validation_loss\": 2.5") != std::string::npos;
  EXPECT_TRUE(was_told) << "the snapshot must not name a best one that could not be written";
}

}  // namespace
}  // namespace lockstep
