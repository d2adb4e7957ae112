// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dist/world.h"
#include "train/config.h"

namespace lockstep {

/// Refuses ranks that would compute different bits: their configurations, instruction sets or compilers
/// differ. UserError naming the key and both values.
void require_same_configuration(const Config& config, const World& world);

/// Makes log.dir. UserError naming it.
void make_log_folder(const Config& config);

/// What every training program does first: joins the other ranks, settles dist.replicas, gives each rank its
/// threads, compares configurations, opens each rank's log file (rank<r>.log in log.dir), and prints where
/// the ranks are.
World start_world(Config& config);

}  // namespace lockstep
