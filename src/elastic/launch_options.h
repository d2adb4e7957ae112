// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/elastic/rank_logs.h"
#include "lockstep/hosting/host_messages.h"
#include "lockstep/net/secret.h"

namespace lockstep {

constexpr int default_rendezvous_port = 29400;

/// Options for several nodes, such as --nnodes MIN:MAX. lockrun is started with them on every node.
struct NodeOptions {
  int least_nodes = 1;
  int most_nodes = 1;
  int node_rank = -1;              ///< -1: not given
  std::string endpoint;            ///< host:port at which node 0 waits for the others
  std::string id = "none";         ///< the run's name, the same on every node
  std::string secret_file;         ///< empty: LOCKRUN_SECRET
  std::string local_address;       ///< this host's address; empty: the one that reaches the endpoint
  double timeout_seconds = 600.0;  ///< how long nodes wait for each other
  double last_call_seconds = 5.0;  ///< with least_nodes joined, how long to wait for more
  int slots = 1;                   ///< ranks on this node
  std::string program;             ///< the path of lockrun
};

/// The options of a lockrun command line.
struct LaunchOptions {
  int ranks_per_node = 1;
  bool ranks_given = false;  ///< false: the slots of the host file apply
  bool nodes_given = false;  ///< false: all nodes of the allocation are used
  NodeOptions nodes;
  std::string hostfile;
  int max_restarts = 3;
  double grace_seconds = 30.0;   ///< from a request to stop until ranks are killed, plus snapshots
  double start_seconds = 120.0;  ///< time limit for the start of all ranks
  int master_port = 29500;
  RankLogs logs;
  std::string via = "auto";          ///< pmix, mpirun, srun, or auto
  std::vector<std::string> command;  ///< the program and its arguments
  std::string run_id;                ///< the run that owns the ranks' files, in all of its starts
  int64_t first_generation = 0;      ///< number of the first start; above those of earlier lockruns
};

/// Parses lockrun's arguments, without its own name, and the PET_ variables. Accepts torchrun's names with
/// dashes or underscores. Throws UserError naming the mistake, with a suggestion for an unknown option.
/// Prints --help or --version and then returns nothing.
std::optional<LaunchOptions> parse_launch_options(const std::vector<std::string>& arguments);

/// Returns true on node 0, which waits for the other nodes and supervises. Node 0 has --node-rank 0, or owns
/// the endpoint's address if --node-rank is not given. Throws UserError if the endpoint cannot be used.
bool hosts_rendezvous(const NodeOptions& options);

/// Returns the endpoint's address here. Throws UserError if this host has none that other nodes can reach.
std::string rendezvous_address(const NodeOptions& options);

/// Returns the run's secret from the file or the environment. If there is none, throws UserError that says
/// how to make one.
Secret run_secret(const NodeOptions& options);

}  // namespace lockstep
