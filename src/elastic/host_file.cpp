// SPDX-License-Identifier: Apache-2.0
#include "elastic/host_file.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/interfaces.h"
#include "core/log.h"
#include "core/text.h"
#include "elastic/fixed_nodes.h"
#include "elastic/launch_agent.h"
#include "elastic/process.h"
#include "elastic/timing.h"

namespace lockstep {
namespace {

constexpr double reach_seconds = 6.0;

bool is_this_host(const std::string& name) {
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == host_name();
}

/// A command that succeeds if mpirun could start something on the host.
std::vector<std::string> reach_command(const std::string& host) {
  const char* agent = std::getenv("OMPI_MCA_plm_rsh_agent");
  if (agent == nullptr) return {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", host, "true"};
  std::istringstream words(agent);
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  command.insert(command.end(), {host, "true"});
  return command;
}

/// Asks all at once, so that several that do not answer cost no more than one.
std::set<std::string> find_unreachable(const std::vector<Host>& hosts) {
  std::vector<std::pair<std::string, std::unique_ptr<Process>>> asked;
  for (const Host& host : hosts)
    if (!is_this_host(host.name))
      asked.emplace_back(host.name, std::make_unique<Process>(ProcessOptions{
                                        .command = reach_command(host.name), .without_input = true}));
  const Clock::time_point begin = Clock::now();
  std::set<std::string> unreachable;
  for (const auto& [name, process] : asked) {
    const std::optional<Ending> ending = process->wait(std::max(0.0, reach_seconds - seconds_since(begin)));
    if (!ending || !ending->is_success()) unreachable.insert(name);
  }
  return unreachable;
}

Host parse_host(const std::string& line, const std::string& where) {
  std::istringstream words(line);
  Host host;
  words >> host.name;
  for (std::string word; words >> word;) {
    if (!word.starts_with("slots=")) continue;
    host.slots = std::atoi(word.c_str() + 6);
    require(host.slots > 0, where, ": '", word, "' is not a number of ranks");
  }
  return host;
}

}  // namespace

std::vector<Host> read_host_file(const std::string& path) {
  std::ifstream file(path);
  require(file.is_open(), "--hostfile: cannot read ", path);
  std::vector<Host> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    const Host host = parse_host(line.substr(0, line.find('#')), concat(path, ":", ++number));
    if (!host.name.empty()) hosts.push_back(host);
  }
  return hosts;
}

HostFile::HostFile(const LaunchOptions& options) : options_(options) { read_host_file(options.hostfile); }

std::optional<Placement> HostFile::gather(double seconds) {
  if (!gathering_since_) gathering_since_ = Clock::now();
  std::vector<Host> hosts = read_host_file(options_.hostfile);
  const std::set<std::string> unreachable = find_unreachable(hosts);
  if (!unreachable.empty() && unreachable != unreachable_)
    log_warning(concat("lockrun: cannot reach ", joined(unreachable), "; going on without"));
  unreachable_ = unreachable;
  std::erase_if(hosts, [&](const Host& host) { return unreachable.contains(host.name); });
  if (hosts.size() > static_cast<size_t>(options_.nodes.most_nodes))
    hosts.resize(static_cast<size_t>(options_.nodes.most_nodes));
  const auto least = static_cast<size_t>(options_.nodes.least_nodes);
  if (hosts.size() >= least) return placement_on(hosts);
  const std::string found =
      concat("--hostfile ", options_.hostfile, ": ", hosts.size(), " of at least ", least, " hosts are there",
             unreachable.empty() ? "" : "; not reached: ", joined(unreachable));
  expect(seconds_since(*gathering_since_) < options_.nodes.timeout_seconds, found, ", after ",
         options_.nodes.timeout_seconds, " s (--rdzv-timeout)");
  std::this_thread::sleep_for(duration(seconds));
  return std::nullopt;
}

Placement HostFile::placement_on(const std::vector<Host>& hosts) const {
  Placement placement;
  std::string list;
  bool all_here = true;
  for (const Host& host : hosts) {
    const int ranks = options_.ranks_given ? options_.ranks_per_node : host.slots;
    placement.ranks += ranks;
    placement.hosts.push_back(host.name);
    list += concat(list.empty() ? "" : ",", host.name, ":", ranks);
    all_here = all_here && is_this_host(host.name);
  }
  placement.mpirun_arguments = {"--host", list};
  placement.environment[secret_variable] = secret_.bytes();
  if (all_here) return placement;
  placement.address = reachable_address(options_.nodes);
  // By name: the value is not on any command line.
  for (const char* variable : {secret_variable, "PATH", "LD_LIBRARY_PATH"})
    if (variable == secret_variable || std::getenv(variable) != nullptr)
      placement.mpirun_arguments.insert(placement.mpirun_arguments.end(), {"-x", variable});
  return placement;
}

}  // namespace lockstep
