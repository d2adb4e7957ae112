// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/memory_limit.h"
#include "comm/world.h"
#include "config/config.h"
#include "core/memory.h"
#include "plan/rehearsal.h"

namespace lockstep {

/// Something that a rank keeps in memory.
struct MemoryRow {
  std::string name;  ///< "logits"
  double bytes = 0;
  std::string key = {};     ///< of the configuration, that it grows with most; may be empty
  std::string advice = {};  ///< what to do if it is too much
};

/// What a training takes: of rank 0, which has most.
struct MemoryPlan {
  std::vector<MemoryRow> rows;  ///< what lies in memory where that is most
  double peak = 0;              ///< their sum: VmHWM, or on a GPU the memory that is taken there
  double mapped = 0;            ///< at most, of the address space: what `ulimit -v` bounds
  double on_host = 0;           ///< where that is a GPU's: what a rank has besides on the host
  double host = 0;              ///< of all ranks of a host, in its own memory, what they share once
  double shared = 0;            ///< part of it, in shared memory
  double blocks = 0;            ///< of a rank alone with one replica: in use, or kept for later
  std::vector<MemoryUse> uses;  ///< of a rank alone with one replica: what its memory_table() will say
};

/// Of this run, the most that any of its ranks has; all ranks call it.
PlannedRanks planned_ranks(const World& world);

/// Runs a step of a training dry, with all that belongs to it, and adds what ranks share. `config` is settled
/// (dist.replicas). Nothing is allocated. Throws what the model throws where sizes do not fit together.
MemoryPlan plan_memory(const Config& config, const PlannedRanks& place, const MakeTraining& make);

/// The same for a training loop of one's own: runs `steps` dry and returns what it would take at most, by the
/// scopes of memory.h, on one rank and without the program.
MemoryPlan plan_memory(const std::function<void()>& steps);

}  // namespace lockstep
