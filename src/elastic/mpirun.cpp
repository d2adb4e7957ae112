// SPDX-License-Identifier: Apache-2.0
#include "elastic/mpirun.h"

#include <cstdlib>
#include <fstream>
#include <sys/uio.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "net/addresses.h"

namespace lockstep {
namespace {

bool in_slurm_allocation() { return std::getenv("SLURM_JOB_ID") != nullptr && !find_program("srun").empty(); }

/// Open MPI copies between processes with the kernel's help, which containers and Yama may forbid.
bool may_read_siblings() {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  char from = 1, to = 0;
  const iovec local{.iov_base = &to, .iov_len = 1};
  const iovec remote{.iov_base = &from, .iov_len = 1};
  return scope == 0 && ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

}  // namespace

Launcher choose_launcher(const LaunchOptions& options, const Placement& placement) {
  const bool has_hosts = !placement.hosts.at(0).mpirun_name.empty();
  const bool wants_srun =
      options.via == "srun" || (options.via == "auto" && !has_hosts && in_slurm_allocation());
  if (wants_srun) {
    require(!has_hosts,
            "--via srun: srun takes the hosts of its allocation, not a host file's or a rendezvous'");
    require(in_slurm_allocation(), "--via srun: this is no Slurm allocation, or there is no srun");
    return Launcher::srun;
  }
  if (!find_program("mpirun").empty()) return Launcher::mpirun;
  require(placement.ranks() == 1 && options.via == "auto", "there is no mpirun in PATH: install Open MPI");
  return Launcher::none;
}

const char* name(Launcher launcher) {
  return launcher == Launcher::mpirun ? "mpirun" : launcher == Launcher::srun ? "srun" : "the keeper";
}

std::vector<std::string> launch_command(Launcher launcher, const Placement& placement,
                                        const std::string& lockrun, const std::string& endpoint) {
  std::vector<std::string> command;
  const std::string ranks = std::to_string(placement.ranks());
  if (launcher == Launcher::mpirun) {
    // Ranks share out the cores themselves, and lockrun itself says when there are fewer cores than ranks.
    command = {"mpirun", "--quiet", "-np", ranks, "--oversubscribe", "--bind-to", "none"};
    std::string hosts;
    for (const Placement::Host& host : placement.hosts)
      hosts += concat(hosts.empty() ? "" : ",", host.mpirun_name, ":", host.ranks);
    if (!placement.hosts.at(0).mpirun_name.empty()) command.insert(command.end(), {"--host", hosts});
    command.insert(command.end(), placement.mpirun_arguments.begin(), placement.mpirun_arguments.end());
  } else if (launcher == Launcher::srun) {
    // Keepers leave with 0 whatever their ranks did, so a bad exit is a keeper that broke.
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

std::map<std::string, std::string> launch_environment(const Placement& placement, const std::string& folder) {
  std::map<std::string, std::string> environment = placement.environment;
  const auto set_default = [&](const char* variable, const std::string& value) {
    if (std::getenv(variable) == nullptr) environment.emplace(variable, value);
  };
  if (::geteuid() == 0) {
    set_default("OMPI_ALLOW_RUN_AS_ROOT", "1");
    set_default("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  if (!may_read_siblings()) set_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
  // Hosts elsewhere would have to have the folder too.
  if (placement.address == "127.0.0.1") set_default("OMPI_MCA_orte_tmpdir_base", folder);
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
