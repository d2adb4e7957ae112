// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "config/config.h"
#include "doctor/finding.h"

namespace lockstep {

struct DoctorOptions {
  std::string program;      ///< path of the program whose --probe answers
  std::string listen = {};  ///< host:port to try; empty: this host, any port
  std::string shared_memory = "/dev/shm";
  double deadline_seconds = 60.0;  ///< for anything that ranks do together
};

/// Looks for what would go wrong with a run of this configuration. Started by hand, it starts ranks of its
/// own; as several ranks, it looks at them and their hosts. All ranks call it; rank 0 gets the findings.
std::vector<Finding> examine(const Config& config, const World& world, const DoctorOptions& options);

}  // namespace lockstep
