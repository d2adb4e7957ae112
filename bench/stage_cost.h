// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/world.h"
#include "config/config.h"

namespace lockstep {

struct StageCostOptions {
  int rounds = 3;  ///< in each of which every stage is made anew
  int warmup = 1;  ///< steps of each, after which as many
  int steps = 5;   ///< are timed
  bool append = false;
};

/// What a step of each stage of sharding takes beside one of plain data parallelism, in shared memory and as
/// messages. All ranks call it.
void compare_stages(const Config& config, const World& world, const StageCostOptions& options);

}  // namespace lockstep
