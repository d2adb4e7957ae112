// SPDX-License-Identifier: Apache-2.0
#include "doctor/command.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {
namespace {

[[noreturn]] void become(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                         int output) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  for (const std::string& setting : environment) ::putenv(const_cast<char*>(setting.c_str()));
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

/// Reads until nobody holds the other end any more, or the deadline. False at the deadline.
bool read_until(Clock::time_point deadline, int input, std::string& output) {
  std::array<char, 4096> part{};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{.fd = input, .events = POLLIN, .revents = 0};
    const int ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t bytes = ::read(input, part.data(), part.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return true;
    output.append(part.data(), static_cast<size_t>(bytes));
  }
}

/// Politely first: a launcher then ends its ranks, which are in groups of their own.
void end_group(pid_t group, int input) {
  std::string rest;
  ::kill(-group, SIGTERM);
  read_until(Clock::now() + std::chrono::seconds(3), input, rest);
  ::kill(-group, SIGKILL);
}

}  // namespace

CommandResult run_within(double deadline_seconds, const std::vector<std::string>& words,
                         const std::vector<std::string>& environment) {
  std::array<int, 2> ends{};
  expect(::pipe2(ends.data(), O_CLOEXEC) == 0, "no pipe: ", std::strerror(errno));
  const auto deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(deadline_seconds * 1e3));
  const pid_t process = ::fork();
  if (process == 0) become(words, environment, ends[1]);
  ::close(ends[1]);
  CommandResult result;
  if (process > 0) {
    result.timed_out = !read_until(deadline, ends[0], result.output);
    if (result.timed_out) end_group(process, ends[0]);
    int status = 0;
    // It may have closed its output and live on.
    while (::waitpid(process, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) end_group(process, ends[0]);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  ::close(ends[0]);
  expect(process > 0, "no process for ", words.front(), ": ", std::strerror(errno));
  return result;
}

}  // namespace lockstep
