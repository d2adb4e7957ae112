// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>

#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/keeper/diagnosis.h"
#include "tests/support/eventually.h"

namespace lockstep {
namespace {

/// A shell and a child of it, in one process group.
class Stacks : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eventually([&] {
      text_ = stacks_of_group(shell_.id(), 60.0);
      return text_.find(": sleep 1000\n") != std::string::npos;
    }));
  }

  Process shell_{{.command = {"bash", "-c", "sleep 1000 & wait"}}};
  std::string text_;
};

TEST_F(Stacks, AreThoseOfAllProcessesOfTheGroup) {
  if (find_program("eu-stack").empty() && find_program("gdb").empty()) GTEST_SKIP() << "there is no debugger";
  EXPECT_NE(text_.find("process " + std::to_string(shell_.id()) + ": bash -c"), std::string::npos) << text_;
  EXPECT_NE(text_.find("\n#0 "), std::string::npos) << text_;
  shell_.signal(SIGSTOP);
  EXPECT_NE(stacks_of_group(shell_.id(), 60.0).find("\n#0 "), std::string::npos) << "of a stopped process";
}

TEST_F(Stacks, AreTheKernelsWordsWithoutADebugger) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  text_ = stacks_of_group(shell_.id(), 60.0);
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_NE(text_.find("(bash): state S, waits in "), std::string::npos) << text_;
  EXPECT_NE(text_.find("(sleep): state S, waits in "), std::string::npos) << text_;
}

}  // namespace
}  // namespace lockstep
