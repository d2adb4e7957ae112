// SPDX-License-Identifier: Apache-2.0
#include "keeper/rank_stream.h"

#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/process.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

/// A rank whose stdout is a stream, and a console that the test reads.
class StreamedRank {
 public:
  explicit StreamedRank(const std::string& script, RankStream::Input input = RankStream::Input::terminal) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_ = Descriptor(ends[0]);
    console_ = Descriptor(ends[1]);
    stream.emplace(console_.get(), input);
    process.emplace(ProcessOptions{.command = {"bash", "-c", script}, .output = stream->input()});
    stream->close_input();
  }

  /// Reads what the console has received.
  void read() {
    char part[65536];
    for (ssize_t count = 0; (count = ::read(reader_.get(), part, sizeof part)) > 0;)
      text.append(part, static_cast<size_t>(count));
  }
  /// Passes the rank's output on to its end.
  void run() {
    while (!process->ending()) {
      stream->pass_on();
      read();
    }
    stream->take_rest();
    while (stream->has_pending()) {
      stream->pass_on();
      read();
    }
  }

  std::optional<RankStream> stream;
  std::optional<Process> process;
  std::string text;

 private:
  Descriptor reader_, console_;
};

TEST(RankStream, EveryByteArrivesUnchangedAndInOrder) {
  const TemporaryDirectory directory;
  std::string bytes;
  for (int i = 0; i < 1000000; ++i) bytes += static_cast<char>(i % 256 + i / 256);
  write_text(directory / "bytes", bytes);
  for (const auto input : {RankStream::Input::terminal, RankStream::Input::pipe}) {
    StreamedRank rank("cat " + (directory / "bytes"), input);
    rank.run();
    EXPECT_TRUE(rank.text == bytes);
    EXPECT_TRUE(bytes.ends_with(rank.stream->last_bytes()) && !rank.stream->last_bytes().empty());
  }
}

TEST(RankStream, AProgramWritesEachLineAtOnce) {
  StreamedRank rank("(echo line; sleep 1000) | grep line");
  EXPECT_TRUE(eventually([&] {
    rank.stream->pass_on();
    rank.read();
    return rank.text == "line\n";
  }));
  EXPECT_FALSE(rank.process->ending());
}

TEST(RankStream, AHeldRankWaitsInItsWriteAndLosesNothing) {
  StreamedRank rank("seq 300000");
  rank.stream->hold(true);
  while (!rank.stream->is_blocked()) rank.stream->pass_on();
  std::vector<pollfd> watched;
  rank.stream->watch(watched);
  EXPECT_EQ(::poll(watched.data(), watched.size(), 0), 0) << "a keeper that waits for it would not sleep";
  EXPECT_FALSE(rank.process->ending());
  rank.read();
  EXPECT_EQ(rank.text, "");
  rank.stream->hold(false);
  rank.run();
  std::string expected;
  for (int i = 1; i <= 300000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_TRUE(rank.text == expected);
}

TEST(RankStream, ARankThatIsToStopDoesNotWaitForAReader) {
  StreamedRank rank("seq 300000");
  rank.stream->hold(true);
  rank.stream->let_rank_stop();
  EXPECT_TRUE(eventually([&] {
    rank.stream->pass_on();
    return rank.process->ending().has_value();
  }));
}

TEST(RankStream, AFullTerminalDoesNotHoldUpTheKeeper) {
  // A terminal may have less room than poll() promises for a pipe.
  const Descriptor not_read(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(::grantpt(not_read.get()) + ::unlockpt(not_read.get()), 0);
  const Descriptor terminal(::open(::ptsname(not_read.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  RankStream stream(terminal.get(), RankStream::Input::pipe);
  Process rank({.command = {"seq", "300000"}, .output = stream.input()});
  stream.close_input();
  while (!stream.is_blocked()) stream.pass_on();
  EXPECT_FALSE(rank.ending());
}

TEST(RankStream, AReaderThatLeavesDoesNotEndTheRank) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  const Descriptor without_reader(ends[1]);
  RankStream stream(without_reader.get(), RankStream::Input::pipe);
  Process rank({.command = {"bash", "-c", "seq 300000 && exit 7"}, .output = stream.input()});
  stream.close_input();
  EXPECT_TRUE(eventually([&] {
    stream.pass_on();
    return rank.ending().has_value();
  }));
  EXPECT_EQ(rank.ending()->code(), 7);
}

TEST(RankStream, AProcessThatOutlivesTheRankDoesNotHoldUpTheEnd) {
  const TemporaryDirectory directory;
  StreamedRank rank("setsid yes & echo $! >" + (directory / "yes"));
  rank.run();
  rank.stream.reset();
  const pid_t survivor = std::atoi(read_text(directory / "yes").c_str());
  EXPECT_TRUE(eventually([&] {
    const char state = process_state(survivor);
    return state == '\0' || state == 'Z';
  })) << "it can still write";
}

}  // namespace
}  // namespace lockstep
