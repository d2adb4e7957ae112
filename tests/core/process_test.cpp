// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/process.h"

#include <csignal>
#include <gtest/gtest.h>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

constexpr double long_enough = 60.0;

TEST(Process, ItsEndIsKnown) {
  EXPECT_EQ(Process({.command = {"sh", "-c", "exit 3"}}).wait(long_enough)->exit_code, 3);
  EXPECT_EQ(Process({.command = {"sh", "-c", "kill -SEGV $$"}}).wait(long_enough)->signal, SIGSEGV);
  Process lasting({.command = {"sleep", "1000"}});
  EXPECT_FALSE(lasting.wait(0.0).has_value());
}

TEST(Process, WhatCannotBeStartedIsTheUsersMistake) {
  EXPECT_THROW(Process({.command = {"no_such_program"}}), UserError);
  EXPECT_THROW(Process({.command = {"/etc"}}), UserError);
}

TEST(Process, SaysHowItEnded) {
  EXPECT_EQ(describe({.exit_code = 75}), "exit code 75");
  EXPECT_EQ(describe({.signal = SIGKILL}), "SIGKILL (killed)");
  EXPECT_EQ(Ending{.signal = SIGKILL}.code(), 137);
  EXPECT_FALSE(Ending{.signal = SIGKILL}.is_success());
  EXPECT_FALSE(Ending{.exit_code = 75}.is_success());
}

TEST(Process, HasTheEnvironmentAndItsErrorsCanBeRead) {
  Process process(
      {.command = {"sh", "-c", "echo $ANSWER >&2"}, .environment = {{"ANSWER", "42"}}, .is_piped = true});
  process.wait(long_enough);
  EXPECT_EQ(process.read_output(), "42\n");
  EXPECT_EQ(process.read_output(), "");
  EXPECT_EQ(process.output(), -1) << "all writers are closed";
}

TEST(Process, OneThatNeverStopsWritingKeepsNobody) {
  Process process({.command = {"sh", "-c", "while :; do echo more; done >&2"}, .is_piped = true});
  for (int round = 0; round < 5; ++round) {
    wait_for_any({process.output()}, long_enough);
    EXPECT_LE(process.read_output(1000).size(), 1000U);
  }
  EXPECT_FALSE(process.ending().has_value());
}

TEST(Process, ACommandHasItsTime) {
  const CommandResult said =
      run_within(long_enough, {"sh", "-c", "echo out; echo $ANSWER >&2; exit 3"}, {{"ANSWER", "42"}});
  EXPECT_EQ(said.output, "out\n42\n");
  EXPECT_EQ(said.ending.exit_code, 3);
  EXPECT_FALSE(said.timed_out);
  const CommandResult late = run_within(2.0, {"sh", "-c", "echo first; sleep 1000"});
  EXPECT_TRUE(late.timed_out);
  EXPECT_EQ(late.output, "first\n");
  EXPECT_EQ(late.ending.code(), 143);
  EXPECT_EQ(run_within(long_enough, {"no_such_program"}).ending.exit_code, 127);
}

TEST(Process, WhatItLeavesBehindGoesWithIt) {
  const TemporaryDirectory directory;
  Process process({.command = {"sh", "-c", "sleep 1000 & echo $! >" + (directory / "pid")}});
  ASSERT_TRUE(process.wait(long_enough)->is_success());
  const pid_t child = std::atoi(read_text(directory / "pid").c_str());
  EXPECT_TRUE(eventually([&] { return process_state(child) == '\0' || process_state(child) == 'Z'; }));
}

}  // namespace
}  // namespace lockstep
