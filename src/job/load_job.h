// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/comm/world.h"
#include "lockstep/job/keys.h"
#include "lockstep/job/resolve.h"
#include "lockstep/snapshot/found_run.h"

namespace lockstep {

// Settings are what the user has said. A Job has a value for everything. Every function throws UserError that
// names the key to change.

/// Returns the settings of the command line over those of the file over model.preset over `defaults`. They
/// fit together, and the folder of the results and the device are chosen.
Settings load_settings(const Arguments& arguments, const SettingLayer& defaults = {});

/// Returns the job of these settings, whose values fit together.
Job job_of(const Settings& settings);

/// Returns the job of settings on these ranks. Keys that are left open get the values of an earlier run that
/// resumes, which is logged; then those of the ranks. Prepares this process, and throws UserError, like
/// resolve() of a job. All ranks call it.
Job resolve(Settings settings, const World& world);

/// Returns the job with these settings changed. Its values fit together.
Job with_settings(const Job& job, const SettingLayer& settings);

/// Returns what the folder of a run compares.
RunRequest request_of(const Job& job, const Artifacts& artifacts = {});

/// Throws UserError unless the values of a job fit together. `settings`: those of the job.
void check_together(const Job& job, const Settings& settings);

/// Returns the device of a job on this machine. Throws UserError with the reason if cuda is set and no GPU
/// can be used, or if a GPU cannot compute attention heads of this size.
Device chosen_device(const Job& job);

/// Throws UserError if dist.shard or dist.offload does not fit the other keys or the number of ranks.
void require_sharding(const Job& job, int ranks);

}  // namespace lockstep
