// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "doctor/finding.h"

namespace lockstep {

/// Puts a small object below an address, reads, lists and deletes it: what snapshots need. Names the first of
/// these that fails.
Finding check_bucket(const std::string& address);

}  // namespace lockstep
