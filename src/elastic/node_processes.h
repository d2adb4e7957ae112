// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/process.h"
#include "elastic/messages.h"

namespace lockstep {

/// The commands that run on this node for the rendezvous, and all that they have started.
class NodeProcesses {
 public:
  using Report = std::function<void(const NodeMessage&)>;

  /// From now on orphans below this process become its children. Throws Error.
  NodeProcesses();
  ~NodeProcesses();

  /// Starts a shell command; `environment` is set for it in addition. Throws Error.
  void start(int number, const std::string& command, const std::map<std::string, std::string>& environment);
  /// Ends one of them, or all and whatever they left behind: politely, after two seconds with SIGKILL.
  void end(int number);
  void end_all();
  /// Reports what they have written and how they ended.
  void attend(const Report& report);
  /// For poll(): what they write, and their ends.
  std::vector<int> descriptors() const;

 private:
  std::map<int, Process> commands_;  ///< by number
};

}  // namespace lockstep
