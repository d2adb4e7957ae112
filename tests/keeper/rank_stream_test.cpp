// SPDX-License-Identifier: Apache-2.0
#include "lockstep/keeper/rank_stream.h"

#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <list>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

/// A rank whose stdout is a stream, and a console that the test reads.
class StreamedRank {
 public:
  explicit StreamedRank(const std::string& script, RankStream::Route route = {.is_terminal = true}) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_ = Descriptor(ends[0]);
    console_ = Descriptor(ends[1]);
    route.console = console_.get();
    stream.emplace(route);
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
  for (const bool is_terminal : {true, false}) {
    StreamedRank rank("cat " + (directory / "bytes"), {.is_terminal = is_terminal});
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

TEST(RankStream, LinesHaveATagOnTheConsoleAndNoneInTheFile) {
  const TemporaryDirectory directory;
  const std::string file = directory / "attempt_0/3/stdout.log";
  const std::string script = "echo one; echo; printf part; sleep 0.2; printf ' two'";
  for (int run = 0; run < 2; ++run) {
    StreamedRank rank(script, {.tag = "[rank 3]: ", .file = file, .is_terminal = true});
    rank.run();
    EXPECT_EQ(rank.text, "[rank 3]: one\n[rank 3]: \n[rank 3]: part two\n");
    EXPECT_EQ(rank.stream->problem(), "");
  }
  EXPECT_EQ(read_text(file), "one\n\npart twoone\n\npart two") << "a second run appends to the file";
}

TEST(RankStream, LinesOfRanksWithOneConsoleDoNotMix) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reader(ends[0]);
  Descriptor console(ends[1]);
  std::list<RankStream> streams;
  std::list<Process> ranks;
  for (const char* tag : {"a", "b"}) {
    streams.emplace_back(RankStream::Route{.console = console.get(), .tag = tag});
    ranks.emplace_back(
        ProcessOptions{.command = {"seq", "10000", "19999"}, .output = streams.back().input()});
    ranks.back().wait(60.0);
    streams.back().take_rest();
  }
  std::string text;
  while (std::ranges::any_of(streams, &RankStream::has_pending)) {
    for (RankStream& stream : streams) stream.pass_on();
    streams.reverse();
    // Not a multiple of a line, so that the pipe is full at any byte.
    std::string part(9999, '\0');
    part.resize(static_cast<size_t>(::read(reader.get(), part.data(), part.size())));
    text += part;
  }
  streams.clear();
  console.reset();
  for (char byte = 0; ::read(reader.get(), &byte, 1) == 1;) text += byte;
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_EQ(line.size(), 6U) << line;
  EXPECT_EQ(count, 20000);
}

TEST(RankStream, AFileThatCannotBeWrittenCostsItsBytesOnly) {
  const TemporaryDirectory directory;
  const std::string file = directory / "stdout.log";
  // Beyond a limit of file sizes a write fails, as it does on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  StreamedRank rank("seq 30000; exit 7", {.file = file});
  const rlimit limit{.rlim_cur = 8192, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  rank.run();
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(rank.process->ending()->code(), 7);
  EXPECT_TRUE(rank.text.ends_with("\n30000\n"));
  EXPECT_EQ(rank.stream->problem(), "cannot write " + file + ": File too large");
}

TEST(RankStream, ALinkIsNotALogFile) {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("/etc/passwd", directory / "stdout.log");
  EXPECT_THROW(RankStream({.file = directory / "stdout.log"}), UserError);
  EXPECT_THROW(RankStream({.file = "/dev/null/attempt_0/0/stdout.log"}), UserError);
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
  RankStream stream({.console = terminal.get()});
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
  RankStream stream({.console = without_reader.get()});
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
