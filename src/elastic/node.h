// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/process.h"
#include "lockstep/elastic/launchers.h"
#include "lockstep/program/private_folder.h"

namespace lockstep {

/// The lockrun_host of this node, with its folders, and all processes that it has started. Their output goes
/// to lockrun's own.
class NodeHost {
 public:
  /// Makes this process adopt orphans among its descendants. Throws Error.
  NodeHost();
  ~NodeHost();

  /// Starts lockrun_host by this command, in new folders, with `environment` added to this process's. Ends
  /// the one before. Throws Error.
  void start(const std::vector<std::string>& command, std::map<std::string, std::string> environment);
  /// Returns how lockrun_host ended, once.
  std::optional<Ending> take_ending();
  /// Ends lockrun_host and everything it left behind: with SIGTERM, and with SIGKILL after two seconds.
  void end();
  /// Passes on the output, for at most `seconds`.
  void flush(double seconds) const { output_.flush(seconds); }
  /// Returns descriptors for poll(): readable when lockrun_host ends.
  std::vector<int> descriptors() const;

 private:
  RankOutput output_;
  std::optional<AttemptFolders> folders_;
  std::optional<Process> process_;
};

/// Runs a node other than node 0. Joins the rendezvous, hosts this node's ranks on request and returns the
/// run's exit code. If the rendezvous is lost, ends its processes and tries to join again until the timeout.
/// stop_signals() ask the run to stop; a second SIGINT ends this node. Throws Error, UserError.
int run_node(const NodeOptions& options);

}  // namespace lockstep
