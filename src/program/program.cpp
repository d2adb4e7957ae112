// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/program.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <iterator>
#include <optional>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/program/signals.h"

namespace lockstep {
namespace {

/// Writes all bytes. Returns false, with errno, if that fails.
bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

/// Opens a file that is not replaced. /dev/stdout and /dev/stderr may be files that already have contents,
/// which opening them again would overwrite.
int open_for_output(const std::string& path) {
  struct stat wanted {
  }, own{};
  if (::stat(path.c_str(), &wanted) == 0)
    for (const int number : {STDOUT_FILENO, STDERR_FILENO})
      if (::fstat(number, &own) == 0 && own.st_dev == wanted.st_dev && own.st_ino == wanted.st_ino)
        return ::dup(number);
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

/// Returns the message about a failed write to stdout, with the reason in errno if it is not 0. It is empty
/// if the reader is gone: `head` leaves like this, and a reader that has enough needs no message.
std::string loss_now() {
  const int reason = errno;
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (reason == EPIPE || (::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0)) return "";
  return concat("cannot write to the standard output", reason != 0 ? ": " : "",
                reason != 0 ? std::strerror(reason) : "");
}

/// Flushes stdout. Returns why it did not accept everything; nothing if it did.
std::optional<std::string> loss_of_output() {
  errno = 0;
  if (std::cout.flush() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  if (errno == 0) std::fflush(stdout);  // an earlier write failed; this one fails for the same reason
  return loss_now();
}

}  // namespace

void begin_program() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(number, F_GETFD) < 0)
      // The smallest free number is this one. The wrong direction makes each use of it fail.
      ::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  restore_hangup();
}

void write_output(std::string_view text) {
  std::optional<std::string> loss = loss_of_output();
  if (!loss && !write_all(STDOUT_FILENO, text)) loss = loss_now();
  if (loss) throw OutputLost(*loss);
}

void write_output_to(const std::string& path, std::string_view text) {
  struct stat named {};
  if (::lstat(path.c_str(), &named) != 0 || S_ISREG(named.st_mode)) return write_file(path, text);
  const int file = open_for_output(path);
  const bool is_written = file >= 0 && write_all(file, text);
  const int problem = is_written ? 0 : errno;
  // Some file systems report a full disk only when a descriptor is closed.
  const bool is_closed = file < 0 || ::close(file) == 0;
  if (is_written && is_closed) return;
  throw OutputLost(concat("cannot write ", path, ": ", std::strerror(is_written ? errno : problem)));
}

std::string read_input() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  require(std::ferror(stdin) == 0, "cannot read the standard input: ", std::strerror(errno));
  return text;
}

int end_program(int code) {
  std::optional<std::string> loss = loss_of_output();
  // Some file systems report a full disk only when a descriptor is closed.
  if (!loss && ::close(::dup(STDOUT_FILENO)) != 0) loss = loss_now();
  if (!loss || code != 0) return code;
  if (!loss->empty()) log_error(*loss);
  return 1;
}

}  // namespace lockstep
