// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/terminal.h"

#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <initializer_list>
#include <string>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// Returns the words in the format of /proc/PID/cmdline.
std::string command_line(std::initializer_list<const char*> words) {
  std::string text;
  for (const char* word : words) text += std::string(word) + '\0';
  return text;
}

TEST(RedirectsOutput, KnowsTheOptionsOfLaunchers) {
  EXPECT_FALSE(redirects_output(command_line({"mpirun", "-np", "2", "train_gpt", "log.dir=x"})));
  EXPECT_FALSE(redirects_output(command_line({"lockrun", "--nproc", "2", "--", "a", "--output", "x"})));
  EXPECT_TRUE(redirects_output(command_line({"mpirun", "--tag-output", "-np", "2", "train_gpt"})));
  EXPECT_TRUE(redirects_output(command_line({"mpirun", "-np", "2", "-output-filename", "x", "train_gpt"})));
  EXPECT_TRUE(redirects_output(command_line({"prterun", "--output=tag", "train_gpt"})));
}

/// A pseudo-terminal of 57 columns.
class FindTerminal : public testing::Test {
 protected:
  FindTerminal() {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(::grantpt(master_) + ::unlockpt(master_), 0);
    const winsize size{.ws_row = 24, .ws_col = 57, .ws_xpixel = 0, .ws_ypixel = 0};
    terminal_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    EXPECT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
    ::setenv("TERM", "xterm", 1);
  }
  ~FindTerminal() override {
    ::close(terminal_);
    ::close(master_);
    ::unsetenv("TERM");
  }

  /// Returns the columns that a process finds, or 0 if it finds no terminal. Its stderr is a pipe. Its parent
  /// is called `name` and writes its own stderr to `parent_errors`.
  static int columns_below(const char* name, int parent_errors) {
    const pid_t parent = ::fork();
    if (parent == 0) {
      ::prctl(PR_SET_NAME, name);
      ::dup2(parent_errors, STDERR_FILENO);
      int status = 0;
      ::waitpid(start_child(), &status, 0);
      ::_exit(WEXITSTATUS(status));
    }
    int status = 0;
    ::waitpid(parent, &status, 0);
    return WEXITSTATUS(status);
  }

  int master_ = -1;
  int terminal_ = -1;

 private:
  static pid_t start_child() {
    const pid_t child = ::fork();
    if (child != 0) return child;
    int ends[2];
    if (::pipe(ends) != 0 || ::dup2(ends[1], STDERR_FILENO) < 0) ::_exit(99);
    const Terminal found = find_terminal();
    ::_exit(found.shows_errors ? found.columns : 0);
  }
};

TEST_F(FindTerminal, IsTheLaunchersWhereStderrIsAPipeToIt) {
  EXPECT_EQ(columns_below("mpirun", terminal_), 57);
  EXPECT_EQ(columns_below("lockrun", terminal_), 57);
  EXPECT_EQ(columns_below("make", terminal_), 0)
      << "it is unknown whether make copies the pipe to the terminal";
}

TEST_F(FindTerminal, IsNoneWhereTheLauncherWritesElsewhere) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(columns_below("mpirun", ends[1]), 0) << "mpirun ... 2>&1 | tee log";
  ::close(ends[0]);
  ::close(ends[1]);
  const int null = ::open("/dev/null", O_WRONLY);
  EXPECT_EQ(columns_below("mpirun", null), 0);
  ::close(null);
}

TEST_F(FindTerminal, IsWhatEnvShSaysOfSrun) {
  ::setenv("LOCKSTEP_TERMINAL", "63 output", 1);
  EXPECT_EQ(columns_below("slurmstepd", terminal_), 0) << "the process is not a task of srun";
  ::setenv("SLURM_PROCID", "0", 1);
  EXPECT_EQ(columns_below("slurmstepd", terminal_), 63);
  ::setenv("LOCKSTEP_TERMINAL", "wide", 1);
  EXPECT_EQ(columns_below("slurmstepd", terminal_), 0);
  for (const char* variable : {"LOCKSTEP_TERMINAL", "SLURM_PROCID"}) ::unsetenv(variable);
}

TEST_F(FindTerminal, IsNoneWhereALineCannotBeRedrawn) {
  ::setenv("TERM", "dumb", 1);
  EXPECT_EQ(columns_below("mpirun", terminal_), 0);
}

}  // namespace
}  // namespace lockstep
