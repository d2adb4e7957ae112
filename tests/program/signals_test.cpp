// SPDX-License-Identifier: Apache-2.0
#include "program/signals.h"

#include <algorithm>
#include <csignal>
#include <gtest/gtest.h>

#include "core/process.h"
#include "tests/support/eventually.h"

namespace lockstep {
namespace {

TEST(Signals, OnlyProcessesThatHandleASignalGetIt) {
  Process deaf({.command = {"sleep", "1000"}});
  EXPECT_FALSE(signal_catchers(deaf.id(), SIGUSR1));
  Process listening({.command = {"bash", "-c", "trap 'exit 75' USR1; while true; do sleep 0.1; done"}});
  EXPECT_TRUE(eventually([&] { return signal_catchers(listening.id(), SIGUSR1); }));
  EXPECT_EQ(listening.wait(60.0)->exit_code, 75);
  EXPECT_FALSE(deaf.ending().has_value());
}

TEST(Signals, ALostTerminalIsARequestToStopExceptUnderNohup) {
  const auto hears_hangup = [] { return std::ranges::count(stop_signals(), SIGHUP) == 1; };
  std::signal(SIGHUP, SIG_IGN);
  EXPECT_FALSE(hears_hangup());
  std::signal(SIGHUP, SIG_DFL);
  EXPECT_TRUE(hears_hangup());
}

}  // namespace
}  // namespace lockstep
