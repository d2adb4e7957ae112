// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/world.h"
#include "config/config.h"

namespace lockstep {

/// Refuses ranks that would compute different bits: their configurations, instruction sets or compilers
/// differ. UserError naming the key and both values.
void require_same_configuration(const Config& config, const World& world);

/// Makes log.dir. UserError naming it.
void make_log_folder(const Config& config);

/// Settles dist.replicas where nobody has set it: as the unfinished run in log.dir has it, so that it goes on
/// at another number of ranks, else one a rank. UserError if there are fewer than ranks.
void settle_replicas(Config& config, const World& world);

/// Prints what somebody asked about a program, once for all ranks. Returns the exit code.
int answer(const std::string& text);

/// What every training program does first: joins the other ranks, settles dist.replicas, gives each rank its
/// threads, and compares configurations.
World start_world(Config& config);

}  // namespace lockstep
