// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "elastic/nodes.h"

namespace lockstep {

/// Who starts the processes of a generation.
enum class Launcher { mpirun, srun, none };

/// srun in a Slurm allocation unless hosts are named, else mpirun, else none for one rank. UserError if that
/// cannot be.
Launcher choose_launcher(const LaunchOptions& options, const Placement& placement);
const char* name(Launcher launcher);

/// The command line that starts a keeper for each rank.
std::vector<std::string> launch_command(Launcher launcher, const Placement& placement,
                                        const std::string& lockrun, const std::string& endpoint);

/// What the launcher needs in its environment on this machine; `folder` takes its own files.
std::map<std::string, std::string> launch_environment(const Placement& placement, const std::string& folder);

/// What keeps NCCL on the interface of one of this host's addresses, unless the user has chosen one.
std::map<std::string, std::string> nccl_environment(const std::string& address);

}  // namespace lockstep
