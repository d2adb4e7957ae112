// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"

namespace lockstep {

/// The memory of this process in bytes, as /proc/self/status reports it.
struct ProcessMemory {
  double resident = 0;       ///< VmRSS
  double most_resident = 0;  ///< VmHWM
  double mapped = 0;         ///< VmSize, which `ulimit -v` bounds
};
ProcessMemory process_memory();

/// Describes the peaks of this process so far: "peak memory: 1.2 GiB resident; cpu: activations 800 MiB, ...,
/// total 1 GiB". The labels are those of memory_table() on the current stream's device.
std::string peak_memory_text();

/// A limit on memory, and the part of a memory plan that it bounds.
struct MemoryLimit {
  enum class Bounds {
    resident,  ///< memory that a rank has touched, or has on a GPU
    host,      ///< memory that all ranks of a host have touched, shared memory once
    on_host,   ///< host memory of a rank with a GPU
    mapped,    ///< a rank's address space
  };
  double bytes = 0;
  std::string owner;  ///< "this machine has 24 GiB for 2 ranks"
  Bounds bounds = Bounds::resident;
};

/// Returns the limits of this machine and, if lower, of this rank's control groups. With a GPU it adds the
/// GPU's memory. Without one it adds a limit of the address space, and the machine's swap counts as memory.
std::vector<MemoryLimit> memory_limits(const World& world);

}  // namespace lockstep
