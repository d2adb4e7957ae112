// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/core/memory.h"

namespace lockstep {

/// A kind of data that a rank keeps in memory.
struct MemoryRow {
  std::string name;  ///< "logits"
  double bytes = 0;
  std::string key = {};     ///< configuration key that it grows with most; may be empty
  std::string advice = {};  ///< the remedy if it is too much
};

/// The memory that a training takes on rank 0, which has the most.
struct MemoryPlan {
  std::vector<MemoryRow> rows;  ///< contents of memory at its peak
  double peak = 0;              ///< sum of the rows: VmHWM, or the memory that is taken on a GPU
  double mapped = 0;            ///< largest address space, which `ulimit -v` bounds
  double on_host = 0;           ///< with a GPU: further memory of a rank on the host
  double host = 0;              ///< host memory of all ranks of a host; shared memory counts once
  double shared = 0;            ///< the part of `host` that is shared memory
  double blocks = 0;            ///< blocks in use or kept for later, on a single rank with one replica
  std::vector<MemoryUse> uses;  ///< expected memory_table() of a single rank with one replica
};

/// Plans a user's own training loop. Runs `steps` dry and returns its peak memory by the scopes of memory.h.
/// The plan is for one rank and without the program.
MemoryPlan plan_memory(const std::function<void()>& steps);

}  // namespace lockstep
