// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "elastic/node_message.h"
#include "elastic/process.h"

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
  struct Command {
    int number = 0;
    std::unique_ptr<Process> process;
    bool has_ended = false;
  };

  void read_output(const Command& command, const Report& report);

  std::list<Command> commands_;
};

}  // namespace lockstep
