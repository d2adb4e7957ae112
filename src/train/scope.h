// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "comm/world.h"
#include "config/config.h"
#include "snapshot/snapshot.h"

namespace lockstep {

/// Returns the scope of bits: the facts that decide a run's bits in addition to its semantic settings and its
/// data. It names the version of this program's arithmetic. It names the GPU's model and cuBLASLt's version,
/// or the CPU and AMX if that multiplies. It has the number of ranks if MPI or NCCL adds. `train.device` and
/// `train.amx` must be in effect.
std::string scope_of_bits(const Config& config, const World& world);

/// Logs a warning if `snapshot` was written in a scope other than `here`, the scope of the run that resumes.
void compare_scope(const Snapshot& snapshot, const std::string& here);

}  // namespace lockstep
