// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/secret.h"

namespace lockstep {

/// Where one generation runs, and what mpirun has to be told for it.
struct Placement {
  int ranks = 0;                                   ///< the sum over the nodes
  std::vector<std::string> hosts = {};             ///< their names, in the order of the ranks
  std::vector<std::string> mpirun_arguments = {};  ///< where and how its daemons start; none on one host
  std::map<std::string, std::string> environment =
      {};                             ///< to add to mpirun's; holds the secret for the keepers
  std::string address = "127.0.0.1";  ///< where keepers on every node can reach the supervisor
};

/// What happened to a node, or what somebody asked for there.
struct NodeEvent {
  enum class Kind { joined, lost, stop_requested };

  Kind kind;
  std::string node;         ///< "node 1 (host-b, 10.0.0.2)"
  std::string reason = {};  ///< why it was lost, in words
};

/// The hosts of a run as its supervisor sees them.
class Nodes {
 public:
  virtual ~Nodes() = default;

  /// Waits at most so long until a generation can start; nothing if it cannot yet. Throws Error, naming who
  /// is missing, once it has waited longer than the run may.
  virtual std::optional<Placement> gather(double seconds) = 0;
  /// For poll(): readable while an event waits.
  virtual int events() const = 0;
  virtual std::optional<NodeEvent> next_event() = 0;
  /// Ends what still runs of the generation on other nodes.
  virtual void end_generation() = 0;
  /// The run is over: every node's lockrun leaves with this code.
  virtual void finish(int exit_code) = 0;
  /// What keepers prove to know.
  virtual const Secret& secret() const = 0;
};

}  // namespace lockstep
