// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "net/secret.h"

namespace lockstep {

constexpr int default_rendezvous_port = 29400;
/// The secret of the run, for its nodes, agents and keepers.
constexpr const char* secret_variable = "LOCKRUN_SECRET";

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

/// What a lockrun command line asks for.
struct LaunchOptions {
  int ranks_per_node = 1;
  bool ranks_given = false;  ///< else a host file's slots count
  bool nodes_given = false;  ///< else all of an allocation count
  NodeOptions nodes;
  std::string hostfile;
  int max_restarts = 3;
  double grace_seconds = 30.0;   ///< from the request to stop until it is killed, besides snapshots
  double start_seconds = 120.0;  ///< until all ranks have to be there
  int master_port = 29500;
  std::string log_directory;         ///< where failure.json goes; empty: nowhere
  std::string via = "auto";          ///< mpirun, srun, or auto
  std::vector<std::string> command;  ///< the program and its arguments
  std::string run_id;                ///< what the ranks' files belong to, whatever starts of it there are
  int64_t first_generation = 0;      ///< higher than any of an earlier lockrun of the same run id
};

/// Reads lockrun's arguments (without its own name) and the PET_ variables. torchrun's names are known in
/// both spellings, with dashes and underscores. UserError names what is wrong, with a suggestion for an
/// unknown option. Nothing if --help was asked for, and printed.
std::optional<LaunchOptions> parse_launch_options(const std::vector<std::string>& arguments);

/// True for the process that waits for the others and supervises: --node-rank 0, or, where none is given, the
/// host that owns the endpoint's address. UserError if nodes could not meet at the endpoint.
bool hosts_rendezvous(const NodeOptions& options);

/// This host's address that the endpoint means. UserError if it is none, or one that only this host reaches.
std::string rendezvous_address(const NodeOptions& options);

/// From the file or the environment. UserError if there is none: it says how to make one.
Secret run_secret(const NodeOptions& options);

}  // namespace lockstep
