// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/comm/world.h"
#include "lockstep/job/job.h"

namespace lockstep {

struct StageCostOptions {
  int rounds = 3;  ///< each round builds a new training for every stage
  int warmup = 1;  ///< untimed steps of each training
  int steps = 5;   ///< timed steps of each training
  bool append = false;
};

/// Compares a step of each sharding stage with a step of plain data parallelism. Measures both in shared
/// memory and with messages. All ranks call it.
void compare_stages(const Job& job, const World& world, const StageCostOptions& options);

}  // namespace lockstep
