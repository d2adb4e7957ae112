// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace lockstep
