// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "elastic/secret.h"

namespace lockstep {

constexpr int default_rendezvous_port = 29400;

/// What `lockrun --nnodes MIN:MAX --node-rank K --rdzv-endpoint host:port ...` says, typed on every node.
struct NodeOptions {
  int least_nodes = 1;
  int most_nodes = 1;
  int node_rank = -1;              ///< -1: not given
  std::string endpoint;            ///< where node 0 waits for the others
  std::string id = "none";         ///< the run's name, the same on every node
  std::string secret_file;         ///< empty: LOCKRUN_SECRET
  std::string local_address;       ///< this host's own address; empty: the one that reaches the endpoint
  double timeout_seconds = 600.0;  ///< how long to wait for each other
  double last_call_seconds = 5.0;  ///< with the least nodes there, how long to wait for more
  int slots = 1;                   ///< ranks on this node
  std::string program;             ///< the path of lockrun
};

/// True for the process that waits for the others and supervises: --node-rank 0, or, where none is given, the
/// host that owns the endpoint's address. UserError if nodes could not meet at the endpoint.
bool hosts_rendezvous(const NodeOptions& options);

/// This host's address that the endpoint means. UserError if it is none, or one that only this host reaches.
std::string rendezvous_address(const NodeOptions& options);

/// From the file or the environment. UserError if there is none: it says how to make one.
Secret run_secret(const NodeOptions& options);

}  // namespace lockstep
