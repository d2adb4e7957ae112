// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"

namespace lockstep {

/// Returns the number after a word in a file such as /proc/meminfo, or at the beginning of a file. Infinite
/// if there is none.
double number_in_file(const std::filesystem::path& path, const std::string& word = "");

/// The control groups that limit the memory of a process: its own and those above it. Versions 1 and 2.
class ControlGroups {
 public:
  /// Reads <process>/cgroup. A test has other folders.
  explicit ControlGroups(const std::filesystem::path& process = "/proc/self",
                         const std::filesystem::path& root = "/sys/fs/cgroup");

  /// Returns the lowest limit in bytes; infinite: none.
  double memory_limit() const;
  /// Returns how many processes the kernel has killed in the innermost group for lack of memory; nothing if
  /// it does not count them.
  std::optional<int64_t> memory_kills() const;

 private:
  struct Group {
    std::filesystem::path folder;
    bool is_version_2;
  };
  std::vector<Group> groups_;  ///< from the innermost
};

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
