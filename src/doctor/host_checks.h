// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "doctor/finding.h"

namespace lockstep {

/// The cores of this machine, those that this process may use, and what a container's quota leaves of them.
struct Cores {
  int of_host = 1;
  int usable = 1;    ///< in the affinity mask
  double quota = 0;  ///< of the control group, in cores; 0: no limit

  static Cores of_this_process();
};

/// Whether so many ranks of a host, with train.threads each, fit on the cores they may use.
Finding check_binding(const Config& config, const Cores& cores, int ranks_of_host);

/// Whether the kernel says that the clock follows a time server.
Finding check_clock();

/// Running as root: mpirun refuses it unless told otherwise.
Finding check_user();

}  // namespace lockstep
