// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"

namespace lockstep {

/// What this process holds, in bytes, as /proc/self/status says it.
struct ProcessMemory {
  double resident = 0;       ///< VmRSS
  double most_resident = 0;  ///< VmHWM
  double mapped = 0;         ///< VmSize, which `ulimit -v` bounds
};
ProcessMemory process_memory();

/// A bound on memory, and what of a plan it bounds.
struct MemoryLimit {
  enum class Bounds {
    resident,  ///< what a rank has touched, or has on a GPU
    host,      ///< what all ranks of a host have touched of its memory, shared memory once
    on_host,   ///< what a rank with a GPU has besides on the host
    mapped,    ///< a rank's address space
  };
  double bytes = 0;
  std::string owner;  ///< "this machine has 24 GiB for 2 ranks"
  Bounds bounds = Bounds::resident;
};

/// Of this machine (with its swap), and of the current stream's GPU; where it is none, of this rank's control
/// groups and of its address space, those that there are.
std::vector<MemoryLimit> memory_limits(const World& world);

}  // namespace lockstep
