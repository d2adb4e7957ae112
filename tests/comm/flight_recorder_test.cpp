// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/flight_recorder.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "support/flight_records.h"
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
  EXPECT_TRUE(flight_records_in(path).empty());
  constexpr uint64_t collectives = 2 * FlightRecorder::capacity + 10;
  for (uint64_t i = 1; i <= collectives; ++i) {
    const char* operation = i % 2 ? "barrier" : "an_operation_with_a_very_long_name";
    EXPECT_EQ(recorder.begin(operation, static_cast<int64_t>(i)), i);
    if (i < collectives) recorder.end(i);
  }
  EXPECT_EQ(recorder.sequence(), collectives);
  const std::vector<FlightRecord> records = flight_records_in(path);
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
    return flight_records_in(flight_path(directory_, 0))[i].end_nanoseconds != 0;
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
  const std::vector<FlightRecord> records = flight_records_in(path);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_STREQ(records[0].operation, "broadcast");
  EXPECT_NE(records[0].end_nanoseconds, 0);
  EXPECT_STREQ(records[1].operation, "all_gather");
  EXPECT_EQ(records[1].bytes, 64);
  EXPECT_EQ(records[1].end_nanoseconds, 0);
}

TEST_F(FlightRecorderTest, SaysWhoIsBehind) {
  FlightRecorder first(flight_path(directory_, 0)), second(flight_path(directory_, 1));
  for (FlightRecorder* recorder : {&first, &second}) recorder->end(recorder->begin("broadcast", 8));
  EXPECT_EQ(who_is_behind(directory_, 2, 0), "") << "both ranks are in the same collective";
  first.begin("all_gather", 64);
  const FlightRecorder third(flight_path(directory_, 2));
  EXPECT_EQ(who_is_behind(directory_, 3, 0),
            "rank 2 never entered collective 2 (all_gather, 64 bytes), it recorded none; "
            "rank 1 never entered collective 2 (all_gather, 64 bytes), its last was 1 (broadcast)")
      << "the furthest behind comes first";
  second.begin("barrier", 0);
  EXPECT_EQ(who_is_behind(directory_, 2, 0),
            "rank 1 never entered collective 2 (all_gather, 64 bytes), its last was 2 (barrier)")
      << "equal numbers, different collectives";
}

TEST_F(FlightRecorderTest, AccusesNoRankWithoutARecordOfThisJob) {
  constexpr int64_t job = 7, earlier_job = 6;
  FlightRecorder present(flight_path(directory_, 0), job);
  const auto enter = [](FlightRecorder& recorder, int collectives) {
    for (int i = 0; i < collectives; ++i) recorder.begin("exchange", 32);
  };
  enter(present, 3);
  FlightRecorder earlier(flight_path(directory_, 2), earlier_job);
  enter(earlier, 2);
  {
    FlightRecorder torn(flight_path(directory_, 3), job);
    enter(torn, 3);
  }
  std::filesystem::resize_file(flight_path(directory_, 3), 40);
  {  // a host lost its power, and the file system kept the size but not all bytes
    FlightRecorder zeroed(flight_path(directory_, 4), job);
    enter(zeroed, 1);
  }
  std::filesystem::resize_file(flight_path(directory_, 4), 40);
  std::filesystem::resize_file(flight_path(directory_, 4), 100000);
  EXPECT_EQ(who_is_behind(directory_, 5, job), concat("the flight records of 4 of 5 ranks are not in ",
                                                      directory_, ", which hosts may not share"));
  FlightRecorder slow(flight_path(directory_, 1), job);
  enter(slow, 2);
  EXPECT_EQ(who_is_behind(directory_, 5, job),
            "rank 1 never entered collective 3 (exchange, 32 bytes), its last was 2 (exchange)");
  enter(slow, 1);
  EXPECT_EQ(who_is_behind(directory_, 2, job), "") << "later ranks belong to an earlier run of more ranks";
}

TEST_F(FlightRecorderTest, NamesFiveRanksAtMost) {
  std::map<int, FlightRecord> last_of_rank;
  for (int rank = 0; rank < 1000; ++rank)
    last_of_rank[rank] = {.sequence = rank == 400 ? 11U : rank == 777 ? 3U : 10U, .bytes = 4};
  const std::string report = ranks_behind(last_of_rank);
  EXPECT_EQ(report.find("rank 777 never entered collective 11"), 0U) << report;
  EXPECT_TRUE(
      report.ends_with("rank 3 never entered collective 11 (, 4 bytes), its last was 10 (); and 994 "
                       "more ranks"))
      << report;
}

TEST_F(FlightRecorderTest, TheCollectiveOfMostRanksIsTheRightOne) {
  std::map<int, FlightRecord> last_of_rank;
  for (int rank = 0; rank < 4; ++rank) {
    last_of_rank[rank] = {.sequence = 9};
    std::strcpy(last_of_rank[rank].operation, rank == 0 ? "barrier" : "exchange");
  }
  EXPECT_EQ(ranks_behind(last_of_rank),
            "rank 0 never entered collective 9 (exchange, 0 bytes), its last was 9 (barrier)");
}

TEST_F(FlightRecorderTest, ACutFileReadsAsEmpty) {
  const std::string path = flight_path(directory_, 0);
  std::ofstream(path) << "short";
  EXPECT_TRUE(flight_records_in(path).empty());
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

/// Returns the failure of rank 0 of three, for which rank 1 does not come. Each keeps its record in
/// `folders`.
std::string failure_at_deadline(const std::vector<std::string>& folders) {
  std::atomic<bool> given_up{false};
  try {
    run_ranks(3, [&](Communicator& ranks) {
      ranks.record_flights_in(folders[static_cast<size_t>(ranks.rank())]);
      ranks.barrier();
      ranks.set_timeout(ranks.rank() == 0 ? 0.2 : 60.0);
      if (ranks.rank() == 1) {
        while (!given_up.load()) std::this_thread::yield();
        return;
      }
      int value = 0, all[3];
      try {
        ranks.all_gather(&value, 4, all);
      } catch (...) {
        given_up = true;
        throw;
      }
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(FlightRecorderTest, AReportDoesNotWaitForStorageThatHangs) {
  run_ranks(1, [&](Communicator& rank) {
    rank.record_flights_in(directory_);
    std::filesystem::remove(flight_path(directory_, 0));
    // A reader of a pipe hangs until somebody writes to it.
    ASSERT_EQ(::mkfifo(flight_path(directory_, 0).c_str(), 0600), 0);
    EXPECT_NE(rank.failure_of("barrier", 0, 1, "late").find("storage does not answer"), std::string::npos);
  });
  // Ends the reader's wait. Nothing is written, because the reader may have closed its end by then.
  std::ofstream(flight_path(directory_, 0)).close();
}

TEST_F(FlightRecorderTest, ADeadlineReportsWhoIsBehind) {
  const std::string failure = failure_at_deadline({directory_, directory_, directory_});
  EXPECT_NE(failure.find("rank 1 never entered collective 2 (all_gather, 4 bytes), its last was 1 (barrier)"),
            std::string::npos)
      << failure;
}

TEST_F(FlightRecorderTest, HostsWithFoldersOfTheirOwnAccuseNoRank) {
  const TemporaryDirectory first, second;
  // A run of the day before had rank 2 on this host.
  FlightRecorder(flight_path(first.path(), 2), 1).begin("barrier", 0);
  const std::string failure = failure_at_deadline({first.path(), second.path(), second.path()});
  EXPECT_EQ(failure.find("never entered"), std::string::npos) << failure;
  EXPECT_NE(failure.find("the flight records of 2 of 3 ranks are not in " + first.path()), std::string::npos)
      << failure;
}

}  // namespace
}  // namespace lockstep
