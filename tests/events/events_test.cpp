// SPDX-License-Identifier: Apache-2.0
#include "lockstep/events/events.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

#include "support/temporary_directory.h"

namespace lockstep {
namespace {

TEST(Events, AreReadInTheirOrder) {
  const TemporaryDirectory folder;
  append_event(folder.path(), "start", 0, {{"build", "one \"quoted\"\nline"}});
  append_event(folder.path(), "failure", 7);
  const std::vector<RunEvent> events = read_events(folder.path());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].what, "start");
  EXPECT_EQ(events[0].facts.at("build"), "one \"quoted\"\nline");
  EXPECT_EQ(events[1].what, "failure");
  EXPECT_EQ(events[1].step, 7);
  EXPECT_TRUE(events[1].facts.empty());
  EXPECT_GE(events[1].unix_seconds, events[0].unix_seconds);
  EXPECT_GT(events[0].unix_seconds, 1.7e9);
}

TEST(Events, FollowATornLine) {
  const TemporaryDirectory folder;
  append_event(folder.path(), "start", 0);
  std::ofstream(folder.path() + "/" + events_file, std::ios::app) << R"({"event": "fai)";
  append_event(folder.path(), "start", 3);
  const std::vector<RunEvent> events = read_events(folder.path());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].step, 3);
}

TEST(Events, OfOtherKindsAreSkipped) {
  const TemporaryDirectory folder;
  EXPECT_TRUE(read_events(folder.path()).empty());
  std::ofstream(folder.path() + "/" + events_file)
      << "[]\n{\"event\": 3}\n{\"event\":\"end\",\"time\":1.5,\"step\":-1}\n"
      << "{\"event\":\"end\",\"time\":1.5,\"step\":4,\"more\":\"text\"}\n\n";
  const std::vector<RunEvent> events = read_events(folder.path());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].facts.at("more"), "text");
}

TEST(Events, OfSeveralThreadsDoNotMix) {
  const TemporaryDirectory folder;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&folder, t] {
        for (int i = 0; i < 25; ++i) append_event(folder.path(), std::string(200, 'a'), t * 25 + i);
      });
  }
  std::set<int64_t> steps;
  for (const RunEvent& event : read_events(folder.path())) steps.insert(event.step);
  EXPECT_EQ(steps.size(), 100U);
}

TEST(Events, ThatCannotBeWrittenAreOnlyLogged) {
  const TemporaryDirectory folder;
  append_event(folder.path() + "/missing", "start", 0);
  std::filesystem::create_symlink("/dev/null", folder.path() + "/" + events_file);
  append_event(folder.path(), "start", 0);
  EXPECT_TRUE(read_events(folder.path()).empty());
}

}  // namespace
}  // namespace lockstep
