// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "job/keys.h"

namespace lockstep {

/// Throws UserError unless the values of a job fit together. `settings`: those of the job.
void check_together(const Job& job, const Settings& settings);

/// Returns the device of a job on this machine. Throws UserError with the reason if cuda is set and no GPU
/// can be used, or if a GPU cannot compute attention heads of this size.
Device chosen_device(const Job& job);

/// Throws UserError if dist.shard or dist.offload does not fit the other keys or the number of ranks.
void require_sharding(const Job& job, int ranks);

}  // namespace lockstep
