// SPDX-License-Identifier: Apache-2.0
#include "elastic/node_options.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

#include "core/error.h"
#include "core/interfaces.h"
#include "elastic/launch_agent.h"

namespace lockstep {
namespace {

Endpoint endpoint_of(const NodeOptions& options) {
  require(
      !options.endpoint.empty(),
      "several nodes need --rdzv-endpoint host:port, the same on every node: an address of node 0 and a port "
      "that is free there");
  return Endpoint::parse(options.endpoint, default_rendezvous_port);
}

/// The endpoint's addresses that mean the same host wherever they are used.
std::vector<std::string> shared_hosts(const NodeOptions& options) {
  const Endpoint endpoint = endpoint_of(options);
  std::vector<std::string> hosts;
  std::string refused;
  for (const SocketAddress& address : resolve(endpoint)) {
    const std::string number = address.endpoint().host;
    if (is_shared(address) || options.most_nodes == 1) {
      hosts.push_back(number);
    } else {
      refused = number;
    }
  }
  require(
      !hosts.empty(), "--rdzv-endpoint ", options.endpoint, " is ", refused,
      ", which other nodes cannot reach: give an address of node 0 on the network that the nodes share (this "
      "host has ",
      describe_shared_addresses(), ")");
  return hosts;
}

/// The first of them that is this host's own, or "".
std::string own_among(const std::vector<std::string>& hosts) {
  for (const InterfaceAddress& own : interface_addresses())
    if (std::find(hosts.begin(), hosts.end(), own.address) != hosts.end()) return own.address;
  return "";
}

}  // namespace

bool hosts_rendezvous(const NodeOptions& options) {
  require(options.least_nodes >= 1 && options.least_nodes <= options.most_nodes, "--nnodes ",
          options.least_nodes, ":", options.most_nodes, " is no range");
  require(options.node_rank < options.most_nodes, "--node-rank ", options.node_rank, " of ",
          options.most_nodes, " nodes: they count from 0");
  if (options.node_rank == 0) return true;
  return !own_among(shared_hosts(options)).empty() && options.node_rank < 0;
}

std::string rendezvous_address(const NodeOptions& options) {
  const std::string address = own_among(shared_hosts(options));
  require(!address.empty(), "--rdzv-endpoint ", options.endpoint, " is not an address of this host (it has ",
          describe_shared_addresses(), ")");
  return address;
}

Secret run_secret(const NodeOptions& options) {
  if (!options.secret_file.empty()) return Secret::from_file(options.secret_file);
  const char* text = std::getenv(secret_variable);
  require(text != nullptr && *text != '\0',
          "several nodes need a secret that only they know: make one with  openssl rand -hex 32 > secret; "
          "chmod 600 secret  and give every node the same one with --rdzv-secret-file or in LOCKRUN_SECRET");
  return Secret::from_text(text, secret_variable);
}

}  // namespace lockstep
