// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class LogTest : public testing::Test {
 protected:
  void TearDown() override { set_log_rank(0, false); }

  /// Returns the lines that one message of each kind prints.
  static std::vector<std::string> printed() {
    testing::internal::CaptureStderr();
    log_info("all is well");
    log_warning("a thing");
    log_error("a worse thing");
    return lines_of(testing::internal::GetCapturedStderr());
  }
};

TEST_F(LogTest, OnlyTroubleNamesItsRank) {
  set_log_rank(3, false);
  EXPECT_EQ(printed(), (std::vector<std::string>{"all is well", "[rank 3] warning: a thing",
                                                 "[rank 3] error: a worse thing"}));
}

TEST_F(LogTest, AQuietRankReportsTroubleOnly) {
  set_log_rank(1, true);
  EXPECT_EQ(printed(),
            (std::vector<std::string>{"[rank 1] warning: a thing", "[rank 1] error: a worse thing"}));
}

TEST_F(LogTest, TheFileHasEverythingWithItsTime) {
  const TemporaryDirectory folder;
  write_text(folder / "run.log", "an older run\n");
  set_log_rank(1, true);
  set_log_file(folder / "run.log");
  printed();
  const std::vector<std::string> lines = lines_of(read_text(folder / "run.log"));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "an older run");
  EXPECT_TRUE(lines[1].ends_with(" all is well")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(" [rank 1] warning: a thing")) << lines[2];
  EXPECT_EQ(lines[3].find("20"), 0U) << "a year should come first: " << lines[3];
}

TEST_F(LogTest, LinesOfThreadsStayWhole) {
  const TemporaryDirectory folder;
  set_log_rank(0, true);
  set_log_file(folder / "run.log");
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) log_info("a line of some length");
    });
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = lines_of(read_text(folder / "run.log"));
  EXPECT_EQ(lines.size(), 400U);
  for (const std::string& line : lines) EXPECT_TRUE(line.ends_with(" a line of some length")) << line;
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsNamed) {
  const TemporaryDirectory folder;
  write_text(folder / "a_file", "");
  const std::string path = folder / "a_file/run.log";
  testing::internal::CaptureStderr();
  set_log_file(path);
  expect_contains(testing::internal::GetCapturedStderr(), {"warning: ", path, "Not a directory"});
  EXPECT_EQ(printed().size(), 3U);
}

TEST_F(LogTest, ALinkIsNotFollowedAndAFifoDoesNotBlock) {
  const TemporaryDirectory directory;
  write_text(directory / "theirs", "mine");
  std::filesystem::create_symlink("theirs", directory / "link");
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  for (const auto& [name, reason] :
       {std::pair("link", "symbolic link"), std::pair("fifo", "not a regular file")}) {
    testing::internal::CaptureStderr();
    set_log_file(directory / name);
    expect_contains(testing::internal::GetCapturedStderr(), {directory / name, reason});
  }
  EXPECT_EQ(read_text(directory / "theirs"), "mine");
}

TEST_F(LogTest, SilencedItStillWritesToTheFile) {
  const TemporaryDirectory folder;
  set_log_file(folder / "run.log");
  silence_log_console();
  EXPECT_TRUE(printed().empty());
  EXPECT_EQ(lines_of(read_text(folder / "run.log")).size(), 3U);
}

TEST_F(LogTest, AMessageMayGoToTheFileAlone) {
  const TemporaryDirectory folder;
  set_log_file(folder / "run.log");
  testing::internal::CaptureStderr();
  log_to_file("a detail");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const std::vector<std::string> lines = lines_of(read_text(folder / "run.log"));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].ends_with(" a detail")) << lines[0];
}

}  // namespace
}  // namespace lockstep
