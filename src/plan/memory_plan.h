// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/memory_limit.h"
#include "comm/world.h"
#include "core/memory.h"
#include "plan/rehearsal.h"

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

/// Returns the ranks of this run, with the largest process memory of any rank. This rank's memory includes
/// the ids of the text, of `id_bytes`. All ranks call it.
PlannedRanks planned_ranks(const World& world, int64_t id_bytes);

/// Runs a step of a training dry, with all its work, and adds the memory that ranks share. `job` must be
/// resolved (dist.replicas). Allocates nothing. Throws the model's error if sizes do not fit together.
MemoryPlan plan_memory(const Job& job, const PlannedRanks& place, const MakeTask& make);

/// Plans a user's own training loop. Runs `steps` dry and returns its peak memory by the scopes of memory.h.
/// The plan is for one rank and without the program.
MemoryPlan plan_memory(const std::function<void()>& steps);

}  // namespace lockstep
