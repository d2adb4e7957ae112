// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <sys/eventfd.h>

#include "core/descriptor.h"
#include "core/error.h"

namespace lockstep {

/// Returns an eventfd: poll() reports it as readable after a write, and reading it never waits. Throws Error.
inline Descriptor event_descriptor(int flags = 0) {
  Descriptor descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | flags));
  const int reason = errno;
  expect(bool(descriptor), "cannot make an eventfd: ", std::strerror(reason));
  return descriptor;
}

}  // namespace lockstep
