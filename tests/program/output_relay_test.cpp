// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/output_relay.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "lockstep/core/process.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

TEST(OutputRelay, EveryByteArrivesInOrderAlsoThatOfAChildThatHasEnded) {
  const TemporaryDirectory directory;
  const Descriptor file(::open((directory / "all").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  {
    const OutputRelay relay(file.get());
    Process child({.command = {"sh", "-c", "seq 100000; echo error >&2"},
                   .output = relay.input(),
                   .errors = relay.input()});
    ASSERT_TRUE(child.wait(60.0)->is_success());
  }
  std::string expected;
  for (int i = 1; i <= 100000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_TRUE(read_text(directory / "all") == expected + "error\n");
}

TEST(OutputRelay, AChildDoesNotNoticeThatTheReaderIsGone) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  const Descriptor without_reader(ends[1]);
  const OutputRelay relay(without_reader.get());
  // Several times as much as a pipe holds.
  Process child({.command = {"sh", "-c", "seq 100000 && exit 7"}, .output = relay.input()});
  EXPECT_EQ(child.wait(60.0)->code(), 7);
  EXPECT_TRUE(relay.flush(60.0));
  EXPECT_EQ(relay.error(), EPIPE);
}

TEST(OutputRelay, AFlushWaitsForASlowReaderUnlessItIsInterrupted) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Descriptor reader(ends[0]);
  const Descriptor writer(ends[1]);
  const OutputRelay relay(writer.get());
  // More than a pipe holds, and less than two.
  Process child({.command = {"seq", "15000"}, .output = relay.input()});
  ASSERT_TRUE(child.wait(60.0)->is_success());
  EXPECT_FALSE(relay.flush(0.0));
  // The relay's thread may not have woken up yet.
  EXPECT_TRUE(eventually([&] { return relay.seconds_behind() > 0.0; }));
  EXPECT_FALSE(relay.flush(60.0, reader.get())) << "the interruption is readable";
  std::string text;
  std::thread slow([&] {
    for (char byte; !text.ends_with("15000\n") && ::read(reader.get(), &byte, 1) == 1;) text += byte;
  });
  EXPECT_TRUE(relay.flush(60.0));
  slow.join();
  EXPECT_TRUE(text.ends_with("\n14999\n15000\n"));
  EXPECT_EQ(relay.seconds_behind(), 0.0);
  EXPECT_EQ(relay.error(), 0);
}

TEST(OutputRelay, AFailedWriteLeavesItsReason) {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const OutputRelay relay(full.get());
  ASSERT_EQ(::write(relay.input(), "x", 1), 1);
  EXPECT_TRUE(relay.flush(60.0));
  EXPECT_EQ(relay.error(), ENOSPC);
}

TEST(OutputRelay, AReaderThatHasStoppedDoesNotHoldUpTheEnd) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor nobody_reads(ends[0]), full(ends[1]);
  const OutputRelay relay(full.get());
  Process child({.command = {"sh", "-c", "seq 100000"}, .output = relay.input()});
  EXPECT_FALSE(child.wait(0.2).has_value()) << "it waits for the reader, as it would without the relay";
}

}  // namespace
}  // namespace lockstep
