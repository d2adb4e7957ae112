// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/elastic/launchers.h"
#include "lockstep/elastic/node.h"
#include "lockstep/elastic/rendezvous.h"
#include "lockstep/elastic/supervisor.h"
#include "lockstep/keeper/keeper.h"
#include "lockstep/program/program.h"

using namespace lockstep;

namespace {

int supervise(LaunchOptions options, Nodes& nodes, StopRequest& request) {
  make_log_folder(options.logs);
  return Supervisor(options, nodes, request).run();
}

int launch(const LaunchOptions& options) {
  const bool has_rendezvous = options.hostfile.empty() && options.nodes.most_nodes > 1 &&
                              (!options.nodes.endpoint.empty() || !uses_slurm(options));
  // Raises the limit of open files before other nodes join. Without a rendezvous the supervisor does it: it
  // knows all ranks at once.
  if (has_rendezvous) provide_descriptors_for(options.ranks_per_node, options.ranks_per_node);
  if (has_rendezvous && !hosts_rendezvous(options.nodes)) return run_node(options.nodes);
  StopRequest request;
  if (has_rendezvous) {
    // This check comes before the wait for other nodes.
    require_host_program();
    Rendezvous nodes(options.nodes);
    return supervise(options, nodes, request);
  }
  ListedNodes nodes(options);
  return supervise(options, nodes, request);
}

int run(const std::vector<std::string>& arguments) {
  const std::string mode = arguments.empty() ? "" : arguments[0];
  if (mode == "--keeper" && arguments.size() == 2) return run_keeper(arguments[1]);
  const std::optional<LaunchOptions> options = parse_launch_options(arguments);
  return options ? launch(*options) : 0;
}

}  // namespace

int main(int argument_count, char** arguments) {
  begin_program();
  try {
    return end_program(run({arguments + 1, arguments + argument_count}));
  } catch (const UserError& failure) {
    log_error(failure.what());
    return exit_usage;
  } catch (const std::exception& failure) {
    log_error(failure.what());
    return 1;
  }
}
