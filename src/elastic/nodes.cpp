// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/nodes.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/net/addresses.h"

namespace lockstep {
namespace {

bool is_this_host(const std::string& name) {
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == host_name();
}

/// Returns this host's address for keepers on other hosts.
std::string reachable_address(const NodeOptions& nodes) {
  if (!nodes.local_address.empty()) return nodes.local_address;
  const std::vector<InterfaceAddress> shared = shared_addresses();
  require(!shared.empty(), "this host has no address that other hosts can reach; name one with --local-addr");
  return shared.front().address;
}

JobLayout::Host parse_host(const std::string& line, const std::string& where) {
  std::istringstream words(line);
  JobLayout::Host host;
  words >> host.name;
  host.mpirun_name = host.name;
  for (std::string word; words >> word;) {
    if (!word.starts_with("slots=")) continue;
    host.ranks = std::atoi(word.c_str() + 6);
    require(host.ranks > 0, where, ": '", word, "' is not a number of ranks");
  }
  return host;
}

/// Reads a host file as mpirun does: "name [slots=N]" on each line. "#" begins a comment.
std::vector<JobLayout::Host> read_host_file(const std::string& path) {
  std::ifstream file(path);
  require(file.is_open(), "--hostfile: cannot read ", path);
  std::vector<JobLayout::Host> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    const JobLayout::Host host = parse_host(line.substr(0, line.find('#')), concat(path, ":", ++number));
    if (!host.name.empty()) hosts.push_back(host);
  }
  return hosts;
}

JobLayout slurm_allocation(const LaunchOptions& options) {
  const int allocated = std::max(1, number_from_environment("SLURM_JOB_NUM_NODES"));
  require(options.nodes.least_nodes <= allocated, "--nnodes asks for ", options.nodes.least_nodes,
          " nodes, but Slurm allocated ", allocated);
  const int used = options.nodes_given ? std::min(options.nodes.most_nodes, allocated) : allocated;
  // By default a node has the number of ranks that the allocation was made for.
  const int tasks = std::max(1, number_from_environment("SLURM_NTASKS") / allocated);
  const int ranks = options.ranks_given ? options.ranks_per_node : tasks;
  JobLayout placement{.hosts = std::vector<JobLayout::Host>(size_t(used), {.name = "", .ranks = ranks})};
  if (used > 1) placement.address = reachable_address(options.nodes);
  return placement;
}

}  // namespace

int JobLayout::ranks() const {
  int sum = 0;
  for (const Host& host : hosts) sum += host.ranks;
  return sum;
}

const JobLayout::Host& JobLayout::host_of(int rank) const {
  for (const Host& host : hosts)
    if ((rank -= host.ranks) < 0) return host;
  return hosts.back();
}

std::vector<RankMap::Node> JobLayout::nodes() const {
  std::vector<RankMap::Node> all;
  int next_rank = 0;
  for (const Host& host : hosts) {
    RankMap::Node& node =
        all.emplace_back(RankMap::Node{.host = host.name.empty() ? host_name() : host.name});
    for (int i = 0; i < host.ranks; ++i) node.ranks.push_back(next_rank++);
  }
  return all;
}

bool JobLayout::is_on_this_host() const {
  return std::ranges::all_of(hosts, [&](const Host& host) {
    return host.mpirun_name.empty() ? hosts.size() == 1 : is_this_host(host.mpirun_name);
  });
}

void JobLayout::limit(int most_ranks) {
  for (Host& host : hosts) most_ranks -= host.ranks = std::min(host.ranks, most_ranks);
  std::erase_if(hosts, [](const Host& host) { return host.ranks == 0; });
}

bool uses_slurm(const LaunchOptions& options) {
  return environment_if_set("SLURM_JOB_ID") && options.via != "mpirun" && options.via != "pmix";
}

ListedNodes::ListedNodes(const LaunchOptions& options) : options_(options) {
  if (!options.hostfile.empty()) read_host_file(options.hostfile);
}

std::optional<JobLayout> ListedNodes::gather(double seconds) {
  JobLayout placement{.hosts = {{.name = host_name(), .ranks = options_.ranks_per_node}}};
  if (!options_.hostfile.empty()) {
    if (!take_hosts_of_file(placement)) {
      std::this_thread::sleep_for(clock_duration(seconds));
      return std::nullopt;
    }
  } else if (uses_slurm(options_)) {
    placement = slurm_allocation(options_);
  }
  gathering_since_.reset();
  return placement;
}

std::vector<JobLayout::Host> ListedNodes::usable_hosts() const {
  std::vector<JobLayout::Host> hosts = read_host_file(options_.hostfile);
  std::erase_if(hosts, [&](const JobLayout::Host& host) { return left_out_.contains(host.mpirun_name); });
  return hosts;
}

bool ListedNodes::leave_out(const JobLayout::Host& host) {
  if (options_.hostfile.empty() || !left_out_.insert(host.mpirun_name).second) return false;
  const size_t remaining = usable_hosts().size();
  if (remaining > 0 && remaining >= size_t(options_.nodes.least_nodes)) return true;
  left_out_.erase(host.mpirun_name);
  return false;
}

bool ListedNodes::take_hosts_of_file(JobLayout& placement) {
  if (!gathering_since_) gathering_since_ = Clock::now();
  placement.hosts = usable_hosts();
  const size_t there = placement.hosts.size();
  if (there < size_t(options_.nodes.least_nodes)) {
    expect(seconds_since(*gathering_since_) < options_.nodes.timeout_seconds, "--hostfile ",
           options_.hostfile, ": it has only ", there, " of at least ", options_.nodes.least_nodes,
           " hosts after ", options_.nodes.timeout_seconds, " s (--rdzv-timeout)");
    return false;
  }
  placement.hosts.resize(std::min(there, size_t(options_.nodes.most_nodes)));
  if (options_.ranks_given)
    for (JobLayout::Host& host : placement.hosts) host.ranks = options_.ranks_per_node;
  if (placement.is_on_this_host())
    placement.hosts = {{.name = host_name(), .ranks = placement.ranks(), .mpirun_name = "localhost"}};
  else
    placement.address = reachable_address(options_.nodes);
  return true;
}

}  // namespace lockstep
