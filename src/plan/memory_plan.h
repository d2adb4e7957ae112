// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/memory_limit.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/dry_run.h"
#include "lockstep/core/memory.h"
#include "lockstep/job/job.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// A function that makes the task of a job, on the current stream. The task owns all that it refers to, but
/// not the job.
using MakeTask = std::function<std::shared_ptr<const TrainingTask>(const Job& job)>;

/// The input of a plan besides the configuration.
struct PlannedRanks {
  int ranks = 1;
  int ranks_of_host = 1;
  bool writes_together = false;  ///< all ranks write snapshots, though they are not on one host
  ProcessMemory program = {};    ///< memory of a rank's process before there is a model
  double ids = 0;                ///< the part of it that holds the ids of the text
};

/// The memory that a step takes on one rank. This is rank 0 if ranks shard or offload, otherwise a rank that
/// shares nothing. The sizes of memory that ranks would share are included.
struct Rehearsal {
  DryMemory memory;
  DryMemory on_host;  ///< with a GPU: further memory on the host
  std::vector<MemoryUse> uses;
  int64_t elements = 0;   ///< elements of the parameter space
  int64_t trainable = 0;  ///< trainable elements
  int64_t states = 0;     ///< the optimizer's numbers for each element
  int64_t copy_bytes = 0;
  int64_t order_bytes = 0;  ///< the shuffled order of an epoch's samples
  bool is_sharded = false;  ///< sharded or offloaded
  bool cuts_gradients = false;
  double missing_levels = 0;  ///< further partial sums of a sharded rank, in rounds that were not rehearsed
  int slots = 1;              ///< gradient slots that were rehearsed
  int64_t shared_bytes = 0;   ///< memory of a sharded rank that other ranks can read
  int64_t foreign_bytes = 0;  ///< bytes that a fold reads in each slot of other ranks before it releases them
};

/// Runs steps of a training dry on one rank, with the replicas of one of several ranks. Includes the last
/// batch of an epoch, a validation, a snapshot in progress and a sample text. `job` must be resolved
/// (dist.replicas). Nothing is allocated. Throws the model's error if sizes do not fit together.
Rehearsal rehearse(const Job& job, const PlannedRanks& place, const MakeTask& make);

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
