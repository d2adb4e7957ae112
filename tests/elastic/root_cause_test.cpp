// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/root_cause.h"

#include <csignal>
#include <cstring>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

RankReport ended(int rank, Ending ending, const std::string& failure = "") {
  RankReport report{
      .rank = rank, .host = "host-a", .process = 100 + rank, .has_ended = true, .ending = ending};
  report.failure = failure;
  return report;
}

RankReport ended_by_keeper(int rank, uint64_t collective) {
  RankReport report = ended(rank, {.signal = SIGKILL});
  report.was_ended = true;
  report.last_collective = FlightRecord{.sequence = collective, .bytes = 64};
  std::strcpy(report.last_collective->operation, "exchange");
  return report;
}

const std::string waited =
    "exchange of 64 bytes, collective 9: waited 60 s for the other ranks (dist.timeout_s)";

TEST(RootCause, TheFirstThatEndedByItselfIsIt) {
  const AttemptFailure failure{.reports = {ended(2, {.signal = SIGSEGV}), ended(0, {.exit_code = 1})}};
  EXPECT_EQ(root_cause(failure)->rank, 2);
  EXPECT_EQ(exit_code(failure), 139);
  EXPECT_NE(describe(failure).find("rank 2 (host host-a, pid 102) was ended by SIGSEGV"), std::string::npos);
}

TEST(RootCause, ARankThatComputedWrongComesBeforeThoseThatEndedFirst) {
  AttemptFailure failure{.reports = {ended(0, {.exit_code = 1}, "rank 1 computed wrong"),
                                     ended(1, {.exit_code = 1}, "rank 1 computed wrong")}};
  failure.reports[1].computed_wrong = true;
  EXPECT_EQ(root_cause(failure)->rank, 1);
  EXPECT_EQ(exit_code(failure), 1);
  EXPECT_TRUE(report_from_json(to_json(failure.reports[1])).computed_wrong);
}

TEST(RootCause, AKillByTheKernelHasItsReason) {
  AttemptFailure failure{.reports = {ended(2, {.signal = SIGKILL})}};
  failure.reports[0].lack_of_memory = "the limit of its control group is 4 GiB";
  failure.reports[0].step = 7;
  EXPECT_EQ(
      describe(failure),
      "rank 2 (host host-a, pid 102) was ended by SIGKILL (killed) for lack of memory (the limit of its "
      "control group is 4 GiB) at step 7");
  failure.reports[0].ending = {.exit_code = 137};
  EXPECT_NE(describe(failure).find("left with exit code 137 for lack of memory"), std::string::npos);
}

TEST(RootCause, WhoWaitedForOthersIsNotIt) {
  const AttemptFailure failure{
      .reports = {ended(0, {.exit_code = 1}, waited), ended(1, {.signal = SIGKILL})}};
  EXPECT_EQ(root_cause(failure)->rank, 1);
}

TEST(RootCause, AStoppedRankComesBeforeThoseThatWaited) {
  AttemptFailure failure{
      .reports = {ended(0, {.exit_code = 1}, waited), ended_by_keeper(2, 9), ended_by_keeper(1, 8)}};
  failure.reports[2].was_stopped = true;
  EXPECT_EQ(root_cause(failure)->rank, 1);
}

TEST(RootCause, OfSeveralThatAreStuckItIsTheOneBehind) {
  AttemptFailure failure{.reports = {ended_by_keeper(0, 9), ended_by_keeper(1, 8)}};
  for (RankReport& report : failure.reports) report.stuck_seconds = 62;
  EXPECT_EQ(root_cause(failure)->rank, 1);
  EXPECT_EQ(ranks_behind(failure.reports),
            "rank 1 never entered collective 9 (exchange, 64 bytes), its last was 8 (exchange)");
  EXPECT_EQ(exit_code(failure), 1);
}

TEST(RootCause, WhomTheOthersWaitedForIsNamedWithoutASignal) {
  AttemptFailure failure{.reports = {ended(0, {.exit_code = 1}, waited), ended_by_keeper(1, 8)}};
  failure.reports[0].last_collective = ended_by_keeper(0, 9).last_collective;
  EXPECT_EQ(root_cause(failure)->rank, 1);
  EXPECT_NE(describe(failure).find("made no progress, and the others waited for it"), std::string::npos);
}

TEST(RootCause, ALostRankIsNotTheCauseWhereItsLauncherIs) {
  AttemptFailure failure{.reports = {ended(0, {})}};
  failure.reports[0].is_lost = true;
  EXPECT_EQ(root_cause(failure)->rank, 0);
  failure.other_cause = "mpirun ended (SIGKILL (killed)) before its ranks";
  failure.launcher_ending = Ending{.signal = SIGKILL};
  EXPECT_EQ(root_cause(failure), nullptr);
  EXPECT_EQ(exit_code(failure), 137);
  EXPECT_EQ(describe(failure), failure.other_cause);
}

TEST(RootCause, ALostRankIsNotSaidToBeBehind) {
  AttemptFailure failure{.reports = {ended_by_keeper(0, 17), ended_by_keeper(1, 16), ended(2, {})}};
  failure.reports[2].is_lost = true;
  EXPECT_EQ(ranks_behind(failure.reports).find("rank 2"), std::string::npos) << ranks_behind(failure.reports);
  EXPECT_NE(ranks_behind(failure.reports).find("rank 1 never entered"), std::string::npos);
}

TEST(RootCause, ARankWithoutAFlightRecordIsNotAccused) {
  AttemptFailure failure{.reports = {ended_by_keeper(0, 17), ended(3, {.signal = SIGKILL}),
                                     ended_by_keeper(1, 16), ended_by_keeper(2, 12)}};
  failure.reports[1].was_ended = true;
  for (RankReport& report : failure.reports) report.stuck_seconds = 62;
  EXPECT_EQ(root_cause(failure)->rank, 2) << "the furthest behind";
  EXPECT_EQ(ranks_behind(failure.reports).find("rank 3"), std::string::npos) << ranks_behind(failure.reports);
}

TEST(RootCause, LeavingWith75UnaskedIsAFailureWithoutThatCode) {
  const AttemptFailure failure{.reports = {ended(0, {.exit_code = exit_stopped})}};
  EXPECT_NE(describe(failure).find("which lockrun had not asked for"), std::string::npos);
  EXPECT_EQ(exit_code(failure), 1);
}

TEST(RootCause, LastLinesAreToldWhereTheySayMore) {
  AttemptFailure failure{.reports = {ended(0, {.exit_code = 1}, "the loss exploded")}};
  RankReport& report = failure.reports[0];
  report.last_lines = {"error: the loss exploded"};
  EXPECT_EQ(describe(failure).find("last lines"), std::string::npos);
  report.last_lines.push_back("a word from the allocator");
  EXPECT_NE(describe(failure).find("a word from the allocator"), std::string::npos);
}

TEST(RootCause, ReportsTravelWhole) {
  RankReport report = ended_by_keeper(3, 17);
  report.failure = "bytes that are no text: \xff";
  report.last_lines = {"one", "two"};
  report.snapshot_seconds = 2.5;
  report.snapshot_step = 40;
  report.lack_of_memory = "memory";
  report.stacks = "stacks";
  report.lost_output = "output";
  const RankReport copy = report_from_json(to_json(report));
  EXPECT_EQ(copy.last_lines, report.last_lines);
  EXPECT_EQ(copy.snapshot_seconds, 2.5);
  EXPECT_EQ(copy.snapshot_step, 40);
  EXPECT_EQ(copy.lack_of_memory + copy.stacks + copy.lost_output, "memorystacksoutput");
  EXPECT_EQ(copy.last_collective->sequence, 17U);
  EXPECT_STREQ(copy.last_collective->operation, "exchange");
  EXPECT_FALSE(report_from_json(to_json(ended(0, {}))).last_collective);
  EXPECT_THROW(report_from_json("{}"), std::exception);
  EXPECT_THROW(report_from_json("nonsense"), std::exception);
}

}  // namespace
}  // namespace lockstep
