// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/open_mpi.h"

#include <fstream>
#include <regex>
#include <sys/uio.h>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

/// Returns whether Open MPI may copy between processes through the kernel.
bool may_read_siblings() {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  char from = 1, to = 0;
  const iovec local{.iov_base = &to, .iov_len = 1};
  const iovec remote{.iov_base = &from, .iov_len = 1};
  return scope == 0 && ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

}  // namespace

MpiVersion MpiVersion::in(const std::string& text) {
  MpiVersion version;
  for (const char* family : {"Open MPI", "Intel", "MVAPICH", "MPICH"})
    if (version.family.empty() && text.find(family) != std::string::npos) version.family = family;
  // Hydra is the launcher of MPICH.
  if (version.family.empty() && text.find("HYDRA") != std::string::npos) version.family = "MPICH";
  std::smatch match;
  if (std::regex_search(text, match, std::regex("[0-9]+(\\.[0-9]+)+"))) version.number = match[0];
  return version;
}

MpiVersion MpiVersion::of_mpirun() {
  constexpr double deadline_seconds = 20.0;
  const CommandResult result = run_within(deadline_seconds, {"mpirun", "--version"});
  return result.succeeded() ? in(result.output) : MpiVersion{};
}

std::vector<std::string> more_ranks_than_cores() { return {"--oversubscribe", "--bind-to", "none"}; }

OpenMpiEnvironment& OpenMpiEnvironment::allow_root() {
  if (::geteuid() != 0) return *this;
  return set_defaults({{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                       {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
                       {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
}

OpenMpiEnvironment& OpenMpiEnvironment::leave_failures() {
  return set_defaults({{"OMPI_MCA_orte_execute_quiet", "1"}, {"PRTE_MCA_state_base_recoverable", "1"}});
}

OpenMpiEnvironment& OpenMpiEnvironment::respect_ptrace_rules() {
  if (may_read_siblings()) return *this;
  return set_defaults({{"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}, {"OMPI_MCA_smsc", "^cma"}});
}

OpenMpiEnvironment& OpenMpiEnvironment::on_this_host(const std::string& folder) {
  return set_defaults({{"OMPI_MCA_orte_tmpdir_base", folder},
                       {"PRTE_MCA_prte_tmpdir_base", folder},
                       {"OMPI_MCA_reachable", "weighted"}});
}

OpenMpiEnvironment& OpenMpiEnvironment::without_mpirun() {
  // Open MPI 4 treats a process of an unknown launcher as a job of one rank, and in a Slurm allocation as a
  // task of srun. Of its modules for launchers, this one does neither.
  return set_defaults({{"OMPI_MCA_schizo", "ompi"}});
}

OpenMpiEnvironment& OpenMpiEnvironment::with_segments_in(const std::string& folder) {
  return set_defaults(
      {{"OMPI_MCA_btl_vader_backing_directory", folder}, {"OMPI_MCA_btl_sm_backing_directory", folder}});
}

OpenMpiEnvironment& OpenMpiEnvironment::within_one_host() {
  return set_defaults({{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", "self,vader"}});
}

OpenMpiEnvironment& OpenMpiEnvironment::share_cores() {
  return set_defaults({{"OMPI_MCA_mpi_yield_when_idle", "1"}});
}

OpenMpiEnvironment& OpenMpiEnvironment::on_interface(const std::string& interface, bool is_ipv6) {
  return set_defaults(
      {{"OMPI_MCA_btl_tcp_if_include", interface}, {"OMPI_MCA_btl_tcp_disable_family", is_ipv6 ? "4" : "6"}});
}

OpenMpiEnvironment& OpenMpiEnvironment::set_defaults(const std::map<std::string, std::string>& defaults) {
  for (const auto& [variable, value] : defaults)
    if (!environment_if_set(variable.c_str())) variables_.emplace(variable, value);
  return *this;
}

}  // namespace lockstep
