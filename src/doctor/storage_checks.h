// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "doctor/finding.h"

namespace lockstep {

/// About how many parameters the GPT of a configuration has.
int64_t estimate_parameters(const Config& config);

/// Whether a folder that a key names can be written, how fast (with fsync), and whether `wanted_bytes` fit.
/// Leaves nothing behind, and makes no folder.
Finding check_folder(const std::string& key, const std::string& path, int64_t wanted_bytes);

/// Whether memory that ranks of a host share can be had below `folder` (/dev/shm), and enough of it.
Finding check_shared_memory(const std::string& folder, int64_t wanted_bytes);

/// log.dir, shared memory and, on the host of rank 0, which alone writes there, snapshot.path, as a
/// configuration needs them on a host with so many ranks.
std::vector<Finding> check_storage(const Config& config, const std::string& shared_memory, int ranks_of_host,
                                   bool writes_snapshots);

}  // namespace lockstep
