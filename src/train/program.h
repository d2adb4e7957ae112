// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/world.h"
#include "config/config.h"

namespace lockstep {

/// Settles what is open in a configuration, the same on all ranks, which all call it: where an earlier run
/// goes on, what nobody has set is as it was there, which is said. Then each rank has its threads. UserError
/// naming the key and both values where ranks would compute different bits: their configurations, instruction
/// sets, compilers or C libraries differ.
void settle(Config& config, const World& world);

/// Prints what somebody asked about a program, once for all ranks. Returns the exit code.
int answer(const std::string& text);

/// What every training program does first: joins the other ranks, settles the configuration, and takes a GPU
/// where it asks for one.
World start_world(Config& config);

}  // namespace lockstep
