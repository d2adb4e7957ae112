// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "elastic/node_options.h"

namespace lockstep {

/// What a lockrun command line asks for.
struct LaunchOptions {
  int ranks_per_node = 1;
  bool ranks_given = false;  ///< else a host file's slots count
  bool nodes_given = false;  ///< else all of an allocation count
  NodeOptions nodes;
  std::string hostfile;
  int max_restarts = 3;
  double grace_seconds =
      30.0;  ///< from the request to stop until what still runs is killed, besides snapshots
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

}  // namespace lockstep
