// SPDX-License-Identifier: Apache-2.0
#include "program/program.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <iterator>
#include <unistd.h>

#include "core/error.h"
#include "core/log.h"

namespace lockstep {
namespace {

/// Flushes stdout. Returns why it did not accept everything; empty if it did.
std::string loss_of_output() {
  errno = 0;
  if (std::cout.flush() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return "";
  if (errno == 0) std::fflush(stdout);  // an earlier write failed; this one fails for the same reason
  return concat("cannot write to the standard output", errno != 0 ? ": " : "",
                errno != 0 ? std::strerror(errno) : "");
}

}  // namespace

void begin_program() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(number, F_GETFD) < 0)
      // The smallest free number is this one. The wrong direction makes each use of it fail.
      ::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void write_output(std::string_view text) {
  std::cout << text;
  const std::string loss = loss_of_output();
  if (!loss.empty()) throw Error(loss);
}

std::string read_input() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  require(std::ferror(stdin) == 0, "cannot read the standard input: ", std::strerror(errno));
  return text;
}

int end_program(int code) {
  std::string loss = loss_of_output();
  // Some file systems report a full disk only when a descriptor is closed.
  if (loss.empty() && ::close(::dup(STDOUT_FILENO)) != 0)
    loss = concat("cannot write to the standard output: ", std::strerror(errno));
  if (loss.empty() || code != 0) return code;
  log_error(loss);
  return 1;
}

}  // namespace lockstep
