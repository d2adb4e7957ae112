// SPDX-License-Identifier: Apache-2.0
#include "elastic/fixed_nodes.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "core/interfaces.h"
#include "elastic/launch_agent.h"

namespace lockstep {
std::string reachable_address(const NodeOptions& nodes) {
  if (!nodes.local_address.empty()) return nodes.local_address;
  for (const InterfaceAddress& candidate : interface_addresses())
    if (candidate.shared) return candidate.address;
  throw UserError("this host has no address that other hosts can reach; name one with --local-addr");
}

namespace {

/// As many ranks as the allocation was made for.
int tasks_per_node(int nodes) {
  const char* tasks = std::getenv("SLURM_NTASKS");
  return tasks ? std::max(1, std::atoi(tasks) / nodes) : 1;
}

}  // namespace

FixedNodes::FixedNodes(Placement placement) : placement_(std::move(placement)) {
  placement_.environment[secret_variable] = secret_.bytes();
}

FixedNodes FixedNodes::this_host(const LaunchOptions& options) {
  return FixedNodes({.ranks = options.ranks_per_node, .hosts = {host_name()}});
}

FixedNodes FixedNodes::slurm_allocation(const LaunchOptions& options) {
  const char* text = std::getenv("SLURM_JOB_NUM_NODES");
  const int allocated = text ? std::max(1, std::atoi(text)) : 1;
  const NodeOptions& nodes = options.nodes;
  require(nodes.least_nodes <= allocated, "--nnodes asks for ", nodes.least_nodes, " nodes, and Slurm gave ",
          allocated);
  const int used = options.nodes_given ? std::min(nodes.most_nodes, allocated) : allocated;
  Placement placement{
      .ranks = used * (options.ranks_given ? options.ranks_per_node : tasks_per_node(allocated)),
      .hosts = std::vector<std::string>(static_cast<size_t>(used))};
  if (used > 1) placement.address = reachable_address(nodes);
  return FixedNodes(std::move(placement));
}

}  // namespace lockstep
