// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/core/memory.h"
#include "lockstep/core/stream.h"

namespace lockstep {

/// Memory that a process would hold, by the label under which each page is first used.
struct DryMemory {
  int64_t used_bytes = 0;    ///< requested bytes of blocks: the pages that are touched
  int64_t mapped_bytes = 0;  ///< whole blocks, rounded up to size classes: the address space
  std::map<std::string, int64_t> used_by_label = {};
};

/// A scope in which this thread's work on its streams is counted instead of executed. Kernels check their
/// operands, memory is neither allocated nor touched, and the host reads zeros. So a model's own code shows
/// how much memory it needs, quickly and at any size.
///
/// Tensors from before the scope must not be used in it. Tensors made in it must not outlive it.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// Returns the peak so far of memory on the current stream's device. Freed blocks kept for reuse count.
  const DryMemory& peak() const;
  /// Returns the peak so far of host memory, if the device is a GPU.
  const DryMemory& host_peak() const;
  /// Returns the current and peak bytes of the device under each label, like memory_table().
  std::vector<MemoryUse> table() const;

 private:
  class Pool;
  std::unique_ptr<Pool> pool_, host_pool_;
  StreamModeScope scope_;
};

}  // namespace lockstep
