// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/program.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

/// Returns the exit code of a process that runs `body`, with stderr in a file.
int code_of_process(const std::string& errors, const std::function<int()>& body) {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(errors.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), STDERR_FILENO);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void replace_output(int descriptor) { ::dup2(descriptor, STDOUT_FILENO); }

int pipe_without_reader() {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  ::close(ends[0]);
  return ends[1];
}

class Program : public testing::Test {
 protected:
  std::string errors() const { return read_text(directory_ / "errors"); }

  TemporaryDirectory directory_;
};

TEST_F(Program, LostOutputIsAFailureWithItsReason) {
  const auto prints = [&](const std::function<void()>& prepare, int code) {
    return code_of_process(directory_ / "errors", [&] {
      prepare();
      begin_program();
      std::cout << "a result";
      return end_program(code);
    });
  };
  EXPECT_EQ(prints([] { replace_output(::open("/dev/null", O_WRONLY)); }, 0), 0);
  EXPECT_EQ(errors(), "");
  EXPECT_EQ(prints([] { replace_output(::open("/dev/full", O_WRONLY)); }, 0), 1);
  EXPECT_EQ(errors(), "error: cannot write to the standard output: No space left on device\n");
  EXPECT_EQ(prints([] { replace_output(::open("/dev/full", O_WRONLY)); }, 75), 75);
  EXPECT_EQ(prints([] { replace_output(pipe_without_reader()); }, 0), 1);
  EXPECT_EQ(errors().find("Broken pipe"), std::string::npos) << "a reader that has enough is no news";
  EXPECT_EQ(prints([] { ::close(STDOUT_FILENO); }, 0), 1);
  EXPECT_NE(errors().find("Bad file descriptor"), std::string::npos);
}

TEST_F(Program, AResultThatIsLostAtOnceEndsTheProgramThere) {
  const int code = code_of_process(directory_ / "errors", [] {
    begin_program();
    replace_output(pipe_without_reader());
    try {
      write_output("x");
    } catch (const Error&) {
      return 3;
    }
    return 0;
  });
  EXPECT_EQ(code, 3);
}

TEST_F(Program, ALargeResultIsLostWithItsReasonToo) {
  const int code = code_of_process(directory_ / "errors", [] {
    begin_program();
    replace_output(::open("/dev/full", O_WRONLY));
    try {
      write_output(std::string(100000, 'x'));
    } catch (const Error& lost) {
      std::cerr << lost.what() << std::flush;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(errors(), "cannot write to the standard output: No space left on device");
}

TEST_F(Program, ADeviceAFifoAndALinkStayWhereResultsAreWrittenToThem) {
  const std::string fifo = directory_ / "fifo", link = directory_ / "link", file = directory_ / "file";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  write_output_to(fifo, "a result\n");
  std::string text(20, ' ');
  text.resize(std::max<ssize_t>(::read(reader, text.data(), text.size()), 0));
  EXPECT_EQ(text, "a result\n");
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));

  std::filesystem::create_symlink(file, link);
  for (const char* result : {"a new file", "shorter"}) {
    write_output_to(link, result);
    EXPECT_EQ(read_text(file), result);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));

  // A link, so that a mistake deletes that link and not the device.
  std::filesystem::create_symlink("/dev/full", directory_ / "full");
  try {
    write_output_to(directory_ / "full", "x");
    ADD_FAILURE() << "a full device accepts nothing";
  } catch (const Error& lost) {
    EXPECT_EQ(lost.what(), "cannot write " + (directory_ / "full") + ": No space left on device");
  }
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "full"));
}

TEST_F(Program, ResultsForDevStdoutAreAppendedToItsFile) {
  write_text(directory_ / "log", "earlier\n");
  std::filesystem::create_symlink("/proc/self/fd/1", directory_ / "stdout");
  const int code = code_of_process(directory_ / "errors", [&] {
    replace_output(::open((directory_ / "log").c_str(), O_WRONLY | O_APPEND));
    write_output_to(directory_ / "stdout", "result\n");
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read_text(directory_ / "log"), "earlier\nresult\n");
}

TEST_F(Program, NoFileGetsTheNumberOfAClosedStream) {
  const int code = code_of_process(directory_ / "errors", [&] {
    for (const int number : {0, 1, 2}) ::close(number);
    begin_program();
    const int file = ::open((directory_ / "data").c_str(), O_CREAT | O_RDWR, 0600);
    std::cout << "stray" << std::flush;
    std::cerr << "stray" << std::flush;
    return file > 2 && std::cin.get() == EOF ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read_text(directory_ / "data"), "");
}

TEST_F(Program, AWriteBeyondTheLimitOfFilesFailsWithoutASignal) {
  const int code = code_of_process(directory_ / "errors", [&] {
    begin_program();
    const rlimit limit{.rlim_cur = 8, .rlim_max = 8};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const int file = ::open((directory_ / "data").c_str(), O_CREAT | O_WRONLY, 0600);
    const bool fits = ::write(file, "01234567", 8) == 8;
    return fits && ::write(file, "8", 1) < 0 && errno == EFBIG ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Program, InputThatCannotBeReadIsNotAnEmptyOne) {
  const int code = code_of_process(directory_ / "errors", [&] {
    ::dup2(::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY), STDIN_FILENO);
    begin_program();
    try {
      read_input();
    } catch (const UserError&) {
      return 2;
    }
    return 0;
  });
  EXPECT_EQ(code, 2);
}

}  // namespace
}  // namespace lockstep
