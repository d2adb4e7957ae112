// SPDX-License-Identifier: Apache-2.0
#include "elastic/nodes.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>

#include "comm/open_mpi.h"
#include "core/environment.h"
#include "core/error.h"
#include "core/file.h"
#include "core/host.h"
#include "net/addresses.h"

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

bool in_slurm_allocation() { return std::getenv("SLURM_JOB_ID") != nullptr && !find_program("srun").empty(); }

/// Returns whether Open MPI may copy between processes through the kernel. Containers and Yama may forbid it.
bool may_read_siblings() {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  char from = 1, to = 0;
  const iovec local{.iov_base = &to, .iov_len = 1};
  const iovec remote{.iov_base = &from, .iov_len = 1};
  return scope == 0 && ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

/// Returns the version of the mpirun in PATH. Throws UserError if it does not belong to Open MPI. A launcher
/// that prints no version is accepted: it may be a script around Open MPI's.
MpiVersion open_mpi_in_path() {
  const MpiVersion version = MpiVersion::of_mpirun();
  require(version.family.empty() || version.family == "Open MPI",
          "lockrun starts ranks with Open MPI's mpirun, but the mpirun in PATH is ", version.text(),
          ": put Open MPI's first in PATH, or start lockrun --via srun in a Slurm allocation");
  return version;
}

}  // namespace

void require_mpirun_for_several_nodes() {
  const MpiVersion version = open_mpi_in_path();
  require(
      version.major() < 5,
      "lockrun starts ranks on several nodes with Open MPI 4's mpirun or with srun, but ",
      "the mpirun in PATH is ", version.text(),
      ": start lockrun in a Slurm allocation, or build with Open MPI 4.1 and put its mpirun first in PATH");
}

int JobLayout::ranks() const {
  int sum = 0;
  for (const Host& host : hosts) sum += host.ranks;
  return sum;
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
  return std::getenv("SLURM_JOB_ID") != nullptr && options.via != "mpirun";
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
  placement.environment[secret_variable] = secret_.bytes();
  return placement;
}

bool ListedNodes::take_hosts_of_file(JobLayout& placement) {
  if (!gathering_since_) gathering_since_ = Clock::now();
  placement.hosts = read_host_file(options_.hostfile);
  const size_t there = placement.hosts.size();
  if (there < size_t(options_.nodes.least_nodes)) {
    expect(seconds_since(*gathering_since_) < options_.nodes.timeout_seconds, "--hostfile ",
           options_.hostfile, ": it has only ", there, " of at least ", options_.nodes.least_nodes,
           " hosts after ", options_.nodes.timeout_seconds, " s (--rdzv-timeout)");
    return false;
  }
  placement.hosts.resize(std::min(there, size_t(options_.nodes.most_nodes)));
  bool is_all_here = true;
  for (JobLayout::Host& host : placement.hosts) {
    if (options_.ranks_given) host.ranks = options_.ranks_per_node;
    is_all_here &= is_this_host(host.name);
  }
  if (is_all_here) return true;
  placement.address = reachable_address(options_.nodes);
  // mpirun gets the variable's name, so the secret is on no command line.
  for (const char* variable : {secret_variable, "PATH", "LD_LIBRARY_PATH"})
    if (variable == secret_variable || std::getenv(variable) != nullptr)
      placement.mpirun_arguments.insert(placement.mpirun_arguments.end(), {"-x", variable});
  return true;
}

Launcher choose_launcher(const LaunchOptions& options, const JobLayout& placement) {
  const bool has_hosts = !placement.hosts.at(0).mpirun_name.empty();
  const bool wants_srun =
      options.via == "srun" || (options.via == "auto" && !has_hosts && in_slurm_allocation());
  if (wants_srun) {
    require(!has_hosts,
            "--via srun: srun uses the hosts of its allocation, not those of a host file or a rendezvous");
    require(in_slurm_allocation(), "--via srun: this is not a Slurm allocation, or srun is not in PATH");
    return Launcher::srun;
  }
  if (!find_program("mpirun").empty()) {
    if (placement.is_on_this_host())
      open_mpi_in_path();
    else
      require_mpirun_for_several_nodes();
    return Launcher::mpirun;
  }
  require(placement.ranks() == 1 && options.via == "auto", "there is no mpirun in PATH: install Open MPI");
  return Launcher::none;
}

const char* name(Launcher launcher) {
  return launcher == Launcher::mpirun ? "mpirun" : launcher == Launcher::srun ? "srun" : "the keeper";
}

std::vector<std::string> launch_command(Launcher launcher, const JobLayout& placement,
                                        const std::string& lockrun, const std::string& endpoint) {
  std::vector<std::string> command;
  const std::string ranks = std::to_string(placement.ranks());
  if (launcher == Launcher::mpirun) {
    // Ranks divide the cores among themselves. lockrun itself logs when there are fewer cores than ranks.
    command = more_ranks_than_cores();
    command.insert(command.begin(), {"mpirun", "-np", ranks});
    std::string hosts;
    for (const JobLayout::Host& host : placement.hosts)
      hosts += concat(hosts.empty() ? "" : ",", host.mpirun_name, ":", host.ranks);
    if (!placement.hosts.at(0).mpirun_name.empty()) command.insert(command.end(), {"--host", hosts});
    command.insert(command.end(), placement.mpirun_arguments.begin(), placement.mpirun_arguments.end());
  } else if (launcher == Launcher::srun) {
    // Keepers exit with 0 even if their ranks fail, so another exit code means that a keeper failed.
    command = {"srun",
               "--mpi=pmix",
               "--ntasks=" + ranks,
               "--kill-on-bad-exit=1",
               "--cpu-bind=none",
               "--distribution=block",
               "--quiet"};
    command.push_back(concat("--nodes=", placement.hosts.size()));
    command.push_back(concat("--ntasks-per-node=", placement.hosts.at(0).ranks));
  }
  command.insert(command.end(), {lockrun, "--keeper", endpoint});
  return command;
}

std::map<std::string, std::string> launch_environment(const JobLayout& placement, const std::string& folder) {
  MpirunEnvironment mpirun;
  mpirun.allow_root().leave_failures();
  if (!may_read_siblings()) mpirun.without_single_copy();
  // With other hosts the folder would have to exist there, too.
  if (placement.is_on_this_host()) mpirun.on_this_host(folder);
  std::map<std::string, std::string> environment = placement.environment;
  environment.insert(mpirun.variables().begin(), mpirun.variables().end());
  return environment;
}

std::map<std::string, std::string> nccl_environment(const std::string& address) {
  if (std::getenv("NCCL_SOCKET_IFNAME") != nullptr) return {};
  for (const InterfaceAddress& one : interface_addresses())
    if (one.address == address)
      return {{"NCCL_SOCKET_IFNAME", "=" + one.interface},
              {"NCCL_SOCKET_FAMILY", address.find(':') == std::string::npos ? "AF_INET" : "AF_INET6"}};
  return {};
}

}  // namespace lockstep
