// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "comm/world.h"
#include "job/job.h"
#include "snapshot/stored_snapshot.h"

namespace lockstep {

/// Returns the scope of bits: the facts that decide a run's bits besides its semantic settings and its data.
/// They are the version of this program's arithmetic, and the GPU's model with cuBLASLt's version, or the CPU
/// and AMX if that multiplies. The number of ranks counts if MPI or NCCL adds. `train.device` and `train.amx`
/// must be in effect.
std::string scope_of_bits(const Job& job, const World& world);

/// Logs a warning if `snapshot` was written in a scope other than `here`, the scope of the run that resumes.
void compare_scope(const Snapshot& snapshot, const std::string& here);

}  // namespace lockstep
