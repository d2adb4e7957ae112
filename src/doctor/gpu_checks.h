// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "config/config.h"
#include "doctor/finding.h"

namespace lockstep {

/// The driver, the GPUs that this process sees and whether this build can use them, and NCCL, which is
/// initialised on the first of them.
std::vector<Finding> check_gpus(const Config& config);

}  // namespace lockstep
