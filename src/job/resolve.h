// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/comm/world.h"
#include "lockstep/data/dataset.h"
#include "lockstep/job/job.h"

namespace lockstep {

// A job is made in steps, each when its facts are known. Every function throws UserError that names the key
// to change.

/// Resolves a job that a program has filled in. Only its device and its number of replicas may be open: an
/// earlier run that resumes gives the replicas, else the ranks do. Prepares this process for the job: number
/// of threads, AMX, GPU. Throws UserError naming the key and both values if jobs or arithmetic versions of
/// ranks differ. All ranks call it.
Job resolve(const Job& job, const World& world);

/// Returns the job with its length in steps, now that the data are known. Throws UserError if the number of
/// steps or train.patience does not fit the data.
Job with_length(const Job& job, const std::shared_ptr<const Dataset>& training, bool has_validation);

}  // namespace lockstep
