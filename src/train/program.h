// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dist/world.h"
#include "train/config.h"

namespace lockstep {

/// What every training program does first: joins the other ranks, settles dist.replicas, gives each rank its
/// threads, opens its log file (rank<r>.log in log.dir) and says on rank 0 what runs where.
World start_world(Config& config);

}  // namespace lockstep
