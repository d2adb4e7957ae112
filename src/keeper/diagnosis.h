// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/types.h>

#include "lockstep/comm/memory_limit.h"

namespace lockstep {

/// Kills by the kernel for lack of memory, since the construction.
class MemoryKills {
 public:
  /// `machine` has the kernel's files about the whole machine. A test has another folder.
  explicit MemoryKills(ControlGroups groups, std::string machine = "/proc");

  /// Returns why the kernel has killed a process in the groups: "the limit of its control group is 4.0 GiB".
  /// If it does not count for groups, the kills on the whole machine count. Empty: it has killed none.
  std::string reason() const;

 private:
  int64_t count() const;

  ControlGroups groups_;
  std::string machine_;
  int64_t before_;
};

/// Returns the stacks of all threads of a process group, as eu-stack or gdb prints them within `seconds`. For
/// a process that neither can read, returns what the kernel knows about each thread.
std::string stacks_of_group(pid_t group, double seconds);

}  // namespace lockstep
