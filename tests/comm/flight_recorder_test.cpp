// SPDX-License-Identifier: Apache-2.0
#include "comm/flight_recorder.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "comm/local_communicator.h"
#include "core/error.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

class FlightRecorderTest : public testing::Test {
 protected:
  TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(FlightRecorderTest, KeepsTheLastCollectivesInOrder) {
  const std::string path = flight_path(directory_, 3);
  FlightRecorder recorder(path);
  EXPECT_TRUE(FlightRecorder::read(path).empty());
  constexpr uint64_t collectives = 2 * FlightRecorder::capacity + 10;
  for (uint64_t i = 1; i <= collectives; ++i) {
    const char* operation = i % 2 ? "barrier" : "an_operation_with_a_very_long_name";
    EXPECT_EQ(recorder.begin(operation, static_cast<int64_t>(i)), i);
    if (i < collectives) recorder.end(i);
  }
  EXPECT_EQ(recorder.sequence(), collectives);
  const std::vector<FlightRecord> records = FlightRecorder::read(path);
  ASSERT_EQ(records.size(), static_cast<size_t>(FlightRecorder::capacity));
  for (size_t i = 0; i < records.size(); ++i) {
    const uint64_t sequence = collectives - FlightRecorder::capacity + 1 + i;
    EXPECT_EQ(records[i].sequence, sequence);
    EXPECT_EQ(records[i].bytes, static_cast<int64_t>(sequence));
    EXPECT_STREQ(records[i].operation, sequence % 2 ? "barrier" : "an_operation_with_a_ver");
    EXPECT_GT(records[i].begin_nanoseconds, 0);
    EXPECT_EQ(records[i].end_nanoseconds == 0, sequence == collectives) << "only the last is unfinished";
  }
}

// The later run replaces the file instead of truncating it. Truncation would kill a rank of an earlier run
// that still has the file mapped.
TEST_F(FlightRecorderTest, ARankOfAnEarlierRunOutlivesItsFile) {
  const std::string path = flight_path(directory_, 0);
  FlightRecorder earlier(path);
  earlier.begin("barrier", 1);
  const FlightRecorder later(path);
  EXPECT_EQ(earlier.begin("barrier", 2), 2U);
  earlier.end(2);
}

TEST_F(FlightRecorderTest, CollectivesMayEndInTheBackground) {
  FlightRecorder recorder(flight_path(directory_, 0));
  const uint64_t first = recorder.begin("nccl_exchange", 1);
  const uint64_t second = recorder.begin("nccl_gather", 2);
  recorder.end(second);
  const auto is_done = [&](size_t i) {
    return FlightRecorder::read(flight_path(directory_, 0))[i].end_nanoseconds != 0;
  };
  EXPECT_FALSE(is_done(0));
  EXPECT_TRUE(is_done(1));
  for (int i = 2; i < FlightRecorder::capacity + 1; ++i) recorder.begin("barrier", 0);
  recorder.end(first);  // a newer record has already overwritten this one
  for (size_t i = 1; i < FlightRecorder::capacity; ++i) EXPECT_FALSE(is_done(i)) << i;
}

TEST_F(FlightRecorderTest, SurvivesAKilledProcess) {
  const std::string path = flight_path(directory_, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRecorder recorder(path);
    recorder.end(recorder.begin("broadcast", 17));
    recorder.begin("all_gather", 64);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::vector<FlightRecord> records = FlightRecorder::read(path);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_STREQ(records[0].operation, "broadcast");
  EXPECT_NE(records[0].end_nanoseconds, 0);
  EXPECT_STREQ(records[1].operation, "all_gather");
  EXPECT_EQ(records[1].bytes, 64);
  EXPECT_EQ(records[1].end_nanoseconds, 0);
}

TEST_F(FlightRecorderTest, SaysWhoIsBehind) {
  EXPECT_EQ(who_is_behind(directory_, 3), "");
  FlightRecorder first(flight_path(directory_, 0)), second(flight_path(directory_, 1));
  for (FlightRecorder* recorder : {&first, &second}) recorder->end(recorder->begin("broadcast", 8));
  EXPECT_EQ(who_is_behind(directory_, 2), "") << "both ranks are in the same collective";
  first.begin("all_gather", 64);
  EXPECT_EQ(who_is_behind(directory_, 3),
            "rank 1 never entered collective 2 (all_gather, 64 bytes); its last was 1 (broadcast); "
            "rank 2 never entered collective 2 (all_gather, 64 bytes); it recorded none");
  second.begin("barrier", 0);
  EXPECT_EQ(who_is_behind(directory_, 2),
            "rank 1 never entered collective 2 (all_gather, 64 bytes); its last was 2 (barrier)")
      << "equal numbers, different collectives";
}

TEST_F(FlightRecorderTest, ACutFileReadsAsEmpty) {
  const std::string path = flight_path(directory_, 0);
  std::ofstream(path) << "short";
  EXPECT_TRUE(FlightRecorder::read(path).empty());
}

TEST_F(FlightRecorderTest, AFileThatCannotBeMadeIsNamed) {
  const std::string path = directory_ + "/missing/flight.bin";
  try {
    FlightRecorder recorder(path);
    FAIL() << "made";
  } catch (const Error& failure) {
    const std::string text = failure.what();
    EXPECT_NE(text.find(path), std::string::npos) << text;
    EXPECT_NE(text.find("No such file or directory"), std::string::npos) << text;
  }
}

TEST_F(FlightRecorderTest, ADeadlineReportsWhoIsBehind) {
  std::string failure;
  std::atomic<bool> given_up{false};
  try {
    run_ranks(2, [&](Communicator& ranks) {
      ranks.record_flights_in(directory_);
      ranks.barrier();
      ranks.set_timeout(0.2);
      if (ranks.rank() == 1) {
        while (!given_up.load()) std::this_thread::yield();
        return;
      }
      int value = 0, all[2];
      try {
        ranks.all_gather(&value, 4, all);
      } catch (...) {
        given_up = true;
        throw;
      }
    });
  } catch (const Error& error) {
    failure = error.what();
  }
  EXPECT_NE(failure.find("rank 1 never entered collective 2 (all_gather, 4 bytes); its last was 1 (barrier)"),
            std::string::npos)
      << failure;
}

}  // namespace
}  // namespace lockstep
