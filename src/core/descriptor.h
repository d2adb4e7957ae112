// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {

/// An owned file descriptor; -1 means none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void reset() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_ = -1;
};

/// Waits until one of the descriptors (-1: ignored) is readable, for at most `seconds`.
inline void wait_for_any(const std::vector<int>& descriptors, double seconds) {
  std::vector<pollfd> entries;
  for (const int descriptor : descriptors) entries.push_back({descriptor, POLLIN, 0});
  ::poll(entries.data(), entries.size(), static_cast<int>(seconds * 1000.0));
}

/// Returns an eventfd: poll() reports it as readable after a write, and reading it never waits. Throws Error.
inline Descriptor event_descriptor(int flags = 0) {
  Descriptor descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | flags));
  const int reason = errno;
  expect(bool(descriptor), "cannot make an eventfd: ", std::strerror(reason));
  return descriptor;
}

/// A file that was opened, or the reason why not.
struct OpenedFile {
  Descriptor file;
  int error = 0;  ///< errno; EINVAL for a file of a wrong kind
  std::string reason = {};
};
/// Opens a file that a run writes. Refuses a symbolic link and any other file that is not regular.
OpenedFile open_own_file(const std::string& path, int flags);

}  // namespace lockstep
