// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/memory.h"
#include "core/stream.h"

namespace lockstep {

/// Memory that a process would have, by the label under which each page is first used.
struct DryMemory {
  int64_t used_bytes = 0;    ///< of blocks, as far as somebody asked for them: the pages that are touched
  int64_t mapped_bytes = 0;  ///< of whole blocks, rounded up to their size classes: the address space
  std::map<std::string, int64_t> used_by_label = {};
};

/// While it lives, what this thread does on its streams is counted and not done: kernels check their
/// operands, memory is neither made nor touched, and what the host reads is zero. So a model's own code tells
/// what it would need, in no time, whatever its size.
///
/// Tensors from before must not meet it, and those made in it must not outlive it.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// The most that was held at a time so far, of the memory of the current stream's device. Blocks that were
  /// given back for later are held.
  const DryMemory& peak() const;
  /// The same of the host, where the device is a GPU.
  const DryMemory& host_peak() const;
  /// What is in use under each label, and was at most, as memory_table() says it of the device.
  std::vector<MemoryUse> table() const;

 private:
  class Pool;
  std::unique_ptr<Pool> pool_, host_pool_;
  StreamModeScope scope_;
};

}  // namespace lockstep
