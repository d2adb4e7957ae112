// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/output_relay.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// More than a pipe holds. Another process may write to the pipe all the time.
constexpr size_t most_bytes_at_once = size_t(1) << 20;

/// Milliseconds for which a reader may take nothing at the end.
constexpr int last_patience_ms = 1000;

}  // namespace

OutputRelay::OutputRelay(int to)
    : to_(to), end_(event_descriptor()), pipe_(O_NONBLOCK), thread_([this] { relay(); }) {}

OutputRelay::~OutputRelay() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = ::write(end_.get(), &one, sizeof one);
  thread_.join();
}

bool OutputRelay::flush(double seconds, int interruption) const {
  const Clock::time_point begin = Clock::now();
  pollfd entry{interruption, POLLIN, 0};
  int bytes = 0;
  // The thread is busy before it empties the pipe, so the order of these two tests matters.
  while ((::ioctl(pipe_.reading.get(), FIONREAD, &bytes) == 0 && bytes > 0) || is_busy_)
    if (seconds_since(begin) >= seconds || ::poll(&entry, 1, 5) > 0) return false;
  return true;
}

double OutputRelay::seconds_behind() const { return is_busy_ ? seconds_since(busy_since_) : 0.0; }

void OutputRelay::relay() {
  std::array<pollfd, 2> entries{{{pipe_.reading.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}}};
  while (entries[1].revents == 0) {
    ::poll(entries.data(), entries.size(), -1);
    if (!is_busy_) busy_since_ = Clock::now();
    is_busy_ = true;
    is_busy_ = !pass_on(most_bytes_at_once);
  }
}

bool OutputRelay::pass_on(size_t most_bytes) {
  std::array<char, 65536> part;
  while (most_bytes > 0) {
    const ssize_t count = ::read(pipe_.reading.get(), part.data(), std::min(part.size(), most_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    most_bytes -= static_cast<size_t>(count);
    has_reader_ = has_reader_ && deliver({part.data(), static_cast<size_t>(count)});
  }
  return false;
}

bool OutputRelay::deliver(std::string_view bytes) {
  int patience_ms = -1;
  while (!bytes.empty()) {
    // A reader that has stopped must not hold up the end.
    std::array<pollfd, 2> entries{{{to_, POLLOUT, 0}, {end_.get(), POLLIN, 0}}};
    if (::poll(entries.data(), patience_ms < 0 ? 2 : 1, patience_ms) == 0) return false;
    if (entries[1].revents != 0) patience_ms = last_patience_ms;
    if (entries[0].revents == 0) continue;
    // poll() promises room for PIPE_BUF bytes.
    const ssize_t written = ::write(to_, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
      error_ = errno;
      return false;
    }
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace lockstep
