// SPDX-License-Identifier: Apache-2.0
#include "elastic/process.h"

#include <csignal>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "core/error.h"
#include "elastic/last_lines.h"
#include "tests/elastic/lockrun_job.h"
#include "tests/support/eventually.h"

namespace lockstep {
namespace {

constexpr double long_enough = 60.0;

TEST(Process, TellsHowItEnded) {
  EXPECT_EQ(Process({.command = {"sh", "-c", "exit 3"}}).wait(long_enough)->exit_code, 3);
  EXPECT_EQ(Process({.command = {"sh", "-c", "kill -SEGV $$"}}).wait(long_enough)->signal, SIGSEGV);
  Process lasting({.command = {"sleep", "1000"}});
  EXPECT_FALSE(lasting.wait(0.0).has_value());
}

TEST(Process, WhatCannotBeStartedIsTheUsersMistake) {
  EXPECT_THROW(Process({.command = {"no_such_program"}}), UserError);
  EXPECT_THROW(Process({.command = {"/etc"}}), UserError);
}

TEST(Process, HasTheEnvironmentAndItsErrorsCanBeRead) {
  Process process(
      {.command = {"sh", "-c", "echo $ANSWER >&2"}, .environment = {{"ANSWER", "42"}}, .pipe_errors = true});
  process.wait(long_enough);
  char text[8] = {};
  EXPECT_EQ(::read(process.errors(), text, sizeof text), 3);
  EXPECT_STREQ(text, "42\n");
}

TEST(Process, WhatItLeavesBehindGoesWithIt) {
  const TemporaryDirectory directory;
  Process process({.command = {"sh", "-c", "sleep 1000 & echo $! >" + (directory / "pid")}});
  ASSERT_TRUE(process.wait(long_enough)->is_success());
  const pid_t child = std::atoi(read_text(directory / "pid").c_str());
  EXPECT_TRUE(eventually([&] { return process_state(child) == '\0' || process_state(child) == 'Z'; }));
}

TEST(Process, OnlyWhoHandlesASignalGetsIt) {
  const TemporaryDirectory directory;
  Process deaf({.command = {"sleep", "1000"}});
  EXPECT_FALSE(signal_catchers(deaf.id(), SIGUSR1));
  Process listening({.command = {"bash", "-c", "trap 'exit 75' USR1; while true; do sleep 0.1; done"}});
  EXPECT_TRUE(eventually([&] { return signal_catchers(listening.id(), SIGUSR1); }));
  EXPECT_EQ(listening.wait(long_enough)->exit_code, 75);
  EXPECT_FALSE(deaf.ending().has_value());
}

TEST(LastLines, AreWhatATerminalWouldShow) {
  LastLines lines;
  lines.add("\rstep 1/3\x1b[K\rstep 2/3\x1b[K\r\x1b[Kerror: no memory\nplain\n");
  EXPECT_EQ(lines.lines(), (std::vector<std::string>{"error: no memory", "plain"}));
}

TEST(LastLines, AreTheLastTwenty) {
  LastLines lines;
  for (int line = 0; line < 10000; ++line) lines.add(concat("line ", line, "\n"));
  lines.add("no end");
  ASSERT_EQ(lines.lines().size(), LastLines::most_lines);
  EXPECT_EQ(lines.lines().front(), "line 9981");
  EXPECT_EQ(lines.lines().back(), "no end");
}

}  // namespace
}  // namespace lockstep
