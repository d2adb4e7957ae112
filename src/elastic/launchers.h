// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include "lockstep/elastic/launch_options.h"
#include "lockstep/elastic/nodes.h"
#include "lockstep/program/output_relay.h"
#include "lockstep/program/private_folder.h"

namespace lockstep {

/// The program that starts the keepers of an attempt: lockrun_host on each node (pmix), mpirun, srun, or none
/// for a single rank.
enum class Launcher { pmix, mpirun, srun, none };

/// Returns the launcher that --via names. `auto` means srun in a Slurm allocation, unless hosts are named.
/// Else it means pmix if this build has it and no other host has to be reached, and mpirun otherwise. Throws
/// UserError if the launcher cannot be used.
Launcher choose_launcher(const LaunchOptions& options, const JobLayout& layout);
/// Returns the launcher's program for messages: "lockrun_host", "mpirun", "srun", "the keeper".
const char* name(Launcher launcher);

/// Returns the path of lockrun_host, which is beside lockrun. Empty if it was built without libpmix.
std::string host_program();
/// Throws UserError unless this build has lockrun_host, which starts the ranks of several nodes.
void require_host_program();

/// Returns the command line of mpirun or srun, or of the keeper if there is no launcher. mpirun and srun
/// start a keeper for each rank.
std::vector<std::string> launch_command(Launcher launcher, const JobLayout& layout,
                                        const std::string& lockrun, const std::string& endpoint);
/// Returns the command line of lockrun_host for the node with this index.
std::vector<std::string> host_command(const std::string& endpoint, int node);

/// Returns the launcher's variables on this machine. If all ranks are here, Open MPI's files are in
/// `folders`.
std::map<std::string, std::string> launch_environment(Launcher launcher, const JobLayout& layout,
                                                      const AttemptFolders& folders);
/// Returns the variables that name the folders for lockrun_host and its keepers.
std::map<std::string, std::string> folder_environment(const AttemptFolders& folders);

/// Returns variables that limit Open MPI and NCCL to the interface with this address of this host. Leaves out
/// those that the user has set.
std::map<std::string, std::string> network_environment(const std::string& address);

/// Passes the output of a launcher on to lockrun's own. mpirun 4.1.4 crashes when its reader is gone.
struct RankOutput {
  OutputRelay output{STDOUT_FILENO}, errors{STDERR_FILENO};

  /// Flushes both: see OutputRelay::flush().
  bool flush(double seconds, int interruption = -1) const {
    const bool is_flushed = output.flush(seconds, interruption);
    return errors.flush(seconds, interruption) && is_flushed;
  }
  /// Returns whether the readers of lockrun's output are slower than the ranks. mpirun buffers without limit.
  bool is_behind() const { return std::max(output.seconds_behind(), errors.seconds_behind()) > 0.1; }
};

}  // namespace lockstep
