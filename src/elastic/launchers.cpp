// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/launchers.h"

#include <filesystem>
#include <unistd.h>

#include "lockstep/comm/open_mpi.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/net/addresses.h"

namespace lockstep {
namespace {

bool in_slurm_allocation() { return environment_if_set("SLURM_JOB_ID") && !find_program("srun").empty(); }

/// Throws UserError unless the mpirun in PATH is Open MPI's, and Open MPI 4's if it has to reach other hosts.
/// A launcher that prints no version is accepted: it may be a script around Open MPI's.
void require_usable_mpirun(bool reaches_others) {
  require(!find_program("mpirun").empty(), "there is no mpirun in PATH: install Open MPI");
  const MpiVersion version = MpiVersion::of_mpirun();
  require(version.family.empty() || version.family == "Open MPI",
          "lockrun starts ranks with Open MPI's mpirun, but the mpirun in PATH is ", version.text(),
          ": put Open MPI's first in PATH, or start lockrun --via srun in a Slurm allocation");
  require(!reaches_others || version.major() < 5,
          "lockrun reaches the hosts of a host file with Open MPI 4's mpirun, but the mpirun in PATH is ",
          version.text(), ": start lockrun on every node (docs/multi_node.md), or in a Slurm allocation");
}

}  // namespace

Launcher choose_launcher(const LaunchOptions& options, const JobLayout& layout) {
  const bool names_hosts = layout.runs_lockrun || !layout.hosts.at(0).mpirun_name.empty();
  if (options.via == "srun" || (options.via == "auto" && !names_hosts && in_slurm_allocation())) {
    require(!names_hosts,
            "--via srun: srun uses the hosts of its allocation, not those of a host file or a rendezvous");
    require(in_slurm_allocation(), "--via srun: this is not a Slurm allocation, or srun is not in PATH");
    return Launcher::srun;
  }
  const bool reaches_others = !layout.is_on_this_host();
  if (options.via == "pmix" || layout.runs_lockrun) {
    require(options.via != "mpirun",
            "--via mpirun: the nodes of a rendezvous start their ranks themselves (--via pmix)");
    require(layout.runs_lockrun || !reaches_others,
            "--via pmix: it does not reach the hosts of a host file; start lockrun on every node "
            "(docs/multi_node.md), or use --via mpirun");
    require_host_program();
    return Launcher::pmix;
  }
  if (options.via == "auto" && !reaches_others && !host_program().empty()) return Launcher::pmix;
  const bool is_alone = layout.ranks() == 1 && options.via == "auto";
  if (is_alone && find_program("mpirun").empty()) return Launcher::none;
  require_usable_mpirun(reaches_others);
  return Launcher::mpirun;
}

const char* name(Launcher launcher) {
  switch (launcher) {
    case Launcher::pmix:
      return "lockrun_host";
    case Launcher::mpirun:
      return "mpirun";
    case Launcher::srun:
      return "srun";
    case Launcher::none:
      break;
  }
  return "the keeper";
}

std::string host_program() {
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe");
  return find_program(own.parent_path() / "lockrun_host");
}

void require_host_program() {
  require(!host_program().empty(),
          "this lockrun was built without libpmix: install libpmix-dev and build again");
}

std::vector<std::string> launch_command(Launcher launcher, const JobLayout& layout,
                                        const std::string& lockrun, const std::string& endpoint) {
  std::vector<std::string> command;
  const std::string ranks = std::to_string(layout.ranks());
  if (launcher == Launcher::mpirun) {
    // Ranks divide the cores among themselves. lockrun itself logs when there are fewer cores than ranks.
    command = more_ranks_than_cores();
    command.insert(command.begin(), {"mpirun", "-np", ranks});
    std::string hosts;
    for (const JobLayout::Host& host : layout.hosts)
      hosts += concat(hosts.empty() ? "" : ",", host.mpirun_name, ":", host.ranks);
    if (!layout.hosts.at(0).mpirun_name.empty()) command.insert(command.end(), {"--host", hosts});
    // mpirun gets the variable's name, so the secret is on no command line.
    for (const char* variable : {secret_variable, "PATH", "LD_LIBRARY_PATH"})
      if (!layout.is_on_this_host() && (variable == secret_variable || environment_if_set(variable)))
        command.insert(command.end(), {"-x", variable});
  } else if (launcher == Launcher::srun) {
    // Keepers exit with 0 even if their ranks fail, so another exit code means that a keeper failed.
    command = {"srun",
               "--mpi=pmix",
               "--ntasks=" + ranks,
               "--kill-on-bad-exit=1",
               "--cpu-bind=none",
               "--distribution=block",
               "--quiet"};
    command.push_back(concat("--nodes=", layout.hosts.size()));
    command.push_back(concat("--ntasks-per-node=", layout.hosts.at(0).ranks));
  }
  command.insert(command.end(), {lockrun, "--keeper", endpoint});
  return command;
}

std::vector<std::string> host_command(const std::string& endpoint, int node) {
  return {host_program(), endpoint, std::to_string(node)};
}

std::map<std::string, std::string> launch_environment(Launcher launcher, const JobLayout& layout,
                                                      const AttemptFolders& folders) {
  std::map<std::string, std::string> environment = layout.environment;
  if (launcher == Launcher::pmix || layout.is_on_this_host()) environment.merge(folder_environment(folders));
  if (launcher == Launcher::pmix) return environment;
  OpenMpiEnvironment settings;
  settings.allow_root().leave_failures().respect_ptrace_rules();
  // With other hosts the folders would have to exist there, too.
  if (layout.is_on_this_host())
    settings.on_this_host(folders.files.path()).with_segments_in(folders.memory.path()).within_one_host();
  environment.insert(settings.variables().begin(), settings.variables().end());
  return environment;
}

std::map<std::string, std::string> folder_environment(const AttemptFolders& folders) {
  return {{folder_variable, folders.files.path()}, {shared_folder_variable, folders.memory.path()}};
}

std::map<std::string, std::string> network_environment(const std::string& address) {
  const bool is_ipv6 = address.find(':') != std::string::npos;
  for (const InterfaceAddress& one : interface_addresses()) {
    if (one.address != address) continue;
    std::map<std::string, std::string> variables =
        OpenMpiEnvironment().on_interface(one.interface, is_ipv6).variables();
    if (!environment_if_set("NCCL_SOCKET_IFNAME")) {
      variables["NCCL_SOCKET_IFNAME"] = "=" + one.interface;
      variables["NCCL_SOCKET_FAMILY"] = is_ipv6 ? "AF_INET6" : "AF_INET";
    }
    return variables;
  }
  return {};
}

}  // namespace lockstep
