// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/heartbeat.h"

#include <gtest/gtest.h>
#include <string>

#include "lockstep/core/error.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

TEST(Heartbeat, WhatARankWritesAWatcherReads) {
  const TemporaryDirectory directory;
  const auto watched = map_heartbeat(directory / "rank0", true);
  const auto rank = map_heartbeat(directory / "rank0", false);
  EXPECT_EQ(watched->beats.load(), 0U);
  EXPECT_EQ(watched->snapshot_step.load(), -1);
  rank->beats.store(3);
  rank->deadline_seconds.store(1.5);
  EXPECT_EQ(watched->beats.load(), 3U);
  EXPECT_EQ(watched->deadline_seconds.load(), 1.5);
}

TEST(Heartbeat, APageThatIsMissingOrCutIsRefusedByName) {
  const TemporaryDirectory directory;
  write_text(directory / "cut", "x");
  for (const char* name : {"missing", "cut"}) {
    try {
      map_heartbeat(directory / name, false);
      FAIL() << name << " was mapped";
    } catch (const Error& failure) {
      EXPECT_NE(std::string(failure.what()).find(directory / name), std::string::npos) << failure.what();
    }
  }
}

TEST(Heartbeat, BeatsCountAndTheFirstFailureStays) {
  const uint64_t before = heartbeat().beats.load();
  report_progress("training");
  report_progress("a phase whose name is far longer than the page has room for");
  EXPECT_EQ(heartbeat().beats.load(), before + 2);
  EXPECT_EQ(std::string(heartbeat().phase).size(), 31U);
  report_failure("the first");
  report_failure("the second");
  EXPECT_STREQ(heartbeat().failure, "the first");
}

}  // namespace
}  // namespace lockstep
