// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "snapshot/snapshot.h"

namespace lockstep {

/// The scope of bits: what they depend on besides a run's settings and data. Runs in the same scope have the
/// same bits. On a CPU that is the version of this program's arithmetic, and whether AMX multiplies bf16; on
/// a GPU also its model and cuBLASLt's version. `train.device` and `train.amx` must be in effect.
std::string scope_of_bits();

/// Logs a warning if a run resumes from a snapshot that was written in another scope.
void compare_scope(const Snapshot& snapshot);

}  // namespace lockstep
