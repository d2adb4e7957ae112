// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/memory_limit.h"
#include "core/dry_run.h"
#include "train/trainer.h"

namespace lockstep {

/// Makes a model and its training on the current stream. What the task refers to lives as long as the first.
using MakeTraining = std::function<std::pair<std::shared_ptr<const void>, TrainingTask>(const Config&)>;

/// What a plan is told besides the configuration.
struct PlannedRanks {
  int ranks = 1;
  int ranks_of_host = 1;
  bool writes_together = false;  ///< snapshots, by all ranks, though they are not on one host
  ProcessMemory program = {};    ///< of a rank's process before there is a model
};

/// What a step of one rank takes: of rank 0 where ranks cut what they keep or offload it, else if it shares
/// nothing, and the sizes of what ranks would share.
struct Rehearsal {
  DryMemory memory;
  DryMemory on_host;  ///< where that is a GPU's: what it has besides on the host
  std::vector<MemoryUse> uses;
  int64_t elements = 0;   ///< of the parameter space
  int64_t trainable = 0;  ///< of these
  int64_t states = 0;     ///< of the optimizer, numbers for each
  int64_t copy_bytes = 0;
  int64_t order_bytes = 0;  ///< of the samples of an epoch, shuffled
  bool is_sharded = false;  ///< or offloaded
  bool cuts_gradients = false;
  double missing_levels = 0;  ///< of a sharded rank's counter: rounds that were not rehearsed
  int slots = 1;              ///< of gradients, that were rehearsed
  int64_t shared_bytes = 0;   ///< of what a sharded rank has, in memory that others can read
  int64_t foreign_bytes = 0;  ///< that a fold reads there of others, in each of their slots, until it lets go
};

/// Runs steps of a training dry on one rank that has the replicas of one of several, with all that belongs to
/// them: a last batch of an epoch, a validation, a snapshot that is being written, a sample text. `config` is
/// settled (dist.replicas). Nothing is allocated. Throws what the model throws where sizes do not fit
/// together.
Rehearsal rehearse(const Config& config, const PlannedRanks& place, const MakeTraining& make);

}  // namespace lockstep
