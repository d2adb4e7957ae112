// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <fcntl.h>

#include "core/descriptor.h"
#include "core/error.h"

namespace lockstep {

/// A pipe that another process writes to. Reading never waits.
struct Pipe {
  Descriptor reading, writing;

  /// Throws Error if none can be made.
  Pipe() {
    int ends[2];
    const bool is_made = ::pipe2(ends, O_CLOEXEC) == 0;
    expect(is_made, "cannot make a pipe: ", std::strerror(errno));
    reading = Descriptor(ends[0]);
    writing = Descriptor(ends[1]);
    ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);
  }
};

}  // namespace lockstep
