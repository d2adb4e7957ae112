// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <gtest/gtest.h>

#include "lockstep/core/process.h"
#include "lockstep/program/signals.h"
#include "tests/support/eventually.h"

namespace lockstep {
namespace {

TEST(ProcessGroup, OnlyProcessesThatHandleASignalGetIt) {
  Process deaf({.command = {"sleep", "1000"}});
  EXPECT_FALSE(signal_catchers(deaf.id(), SIGUSR1));
  Process listening({.command = {"bash", "-c", "trap 'exit 75' USR1; while true; do sleep 0.1; done"}});
  EXPECT_TRUE(eventually([&] { return signal_catchers(listening.id(), SIGUSR1); }));
  EXPECT_EQ(listening.wait(60.0)->exit_code, 75);
  EXPECT_FALSE(deaf.ending().has_value());
}

}  // namespace
}  // namespace lockstep
