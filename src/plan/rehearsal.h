// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/memory_limit.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/dry_run.h"
#include "lockstep/core/memory.h"
#include "lockstep/job/job.h"
#include "lockstep/plan/memory_plan.h"
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

/// Returns the ranks of this run, with the largest process memory of any rank. This rank's memory includes
/// the ids of the text, of `id_bytes`. All ranks call it.
PlannedRanks planned_ranks(const World& world, int64_t id_bytes);

/// Runs a step of a training dry, with all its work, and adds the memory that ranks share. `job` must be
/// resolved (dist.replicas). Allocates nothing. Throws the model's error if sizes do not fit together.
MemoryPlan plan_memory(const Job& job, const PlannedRanks& place, const MakeTask& make);

}  // namespace lockstep
