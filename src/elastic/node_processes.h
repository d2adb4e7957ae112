// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/process.h"
#include "elastic/messages.h"

namespace lockstep {

/// The commands that run on this node for the rendezvous, and all processes that they have started.
class NodeProcesses {
 public:
  using Report = std::function<void(const NodeMessage&)>;

  /// Makes this process adopt orphans among its descendants. Throws Error.
  NodeProcesses();
  ~NodeProcesses();

  /// Starts a shell command with `environment` in addition to this process's. Throws Error.
  void start(int number, const std::string& command, const std::map<std::string, std::string>& environment);
  /// Sends SIGTERM to one command.
  void end(int number);
  /// Ends all commands and what they left behind: with SIGTERM, and with SIGKILL after two seconds.
  void end_all();
  /// Reports the output of the commands, and those that have ended.
  void attend(const Report& report);
  /// Returns descriptors for poll(): readable on output and when a command ends.
  std::vector<int> descriptors() const;

 private:
  std::map<int, Process> commands_;  ///< keyed by number
};

}  // namespace lockstep
