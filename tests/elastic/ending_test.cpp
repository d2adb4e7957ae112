// SPDX-License-Identifier: Apache-2.0
#include "elastic/ending.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

Ending ending_of_child(void (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) body();
  int status = 0;
  ::waitpid(child, &status, 0);
  return Ending::of_status(status);
}

TEST(Ending, AnExitCodeIsToldAsItIs) {
  const Ending ending = ending_of_child([] { ::_exit(75); });
  EXPECT_EQ(ending.code(), exit_stopped);
  EXPECT_FALSE(ending.is_success());
  EXPECT_EQ(describe(ending), "exit code 75");
}

TEST(Ending, ASignalIsNamed) {
  const Ending ending = ending_of_child([] { ::kill(::getpid(), SIGKILL); });
  EXPECT_EQ(ending.code(), 137);
  EXPECT_FALSE(ending.is_success());
  EXPECT_EQ(describe(ending), "SIGKILL (killed)");
}

}  // namespace
}  // namespace lockstep
