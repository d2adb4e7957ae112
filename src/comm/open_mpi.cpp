// SPDX-License-Identifier: Apache-2.0
#include "comm/open_mpi.h"

#include <cstdlib>
#include <regex>
#include <unistd.h>

#include "core/error.h"
#include "core/process.h"

namespace lockstep {

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

int MpiVersion::major() const { return std::atoi(number.c_str()); }

std::string MpiVersion::text() const { return concat(family, " ", number); }

std::vector<std::string> more_ranks_than_cores() { return {"--oversubscribe", "--bind-to", "none"}; }

MpirunEnvironment& MpirunEnvironment::allow_root() {
  if (::geteuid() != 0) return *this;
  for (const char* variable : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                               "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"})
    set_default(variable, "1");
  return *this;
}

MpirunEnvironment& MpirunEnvironment::leave_failures() {
  set_default("OMPI_MCA_orte_execute_quiet", "1");
  set_default("PRTE_MCA_state_base_recoverable", "1");
  return *this;
}

MpirunEnvironment& MpirunEnvironment::without_single_copy() {
  set_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
  set_default("OMPI_MCA_smsc", "^cma");
  return *this;
}

MpirunEnvironment& MpirunEnvironment::on_this_host(const std::string& folder) {
  set_default("OMPI_MCA_orte_tmpdir_base", folder);
  set_default("PRTE_MCA_prte_tmpdir_base", folder);
  set_default("OMPI_MCA_reachable", "weighted");
  return *this;
}

void MpirunEnvironment::set_default(const char* variable, const std::string& value) {
  if (std::getenv(variable) == nullptr) variables_.emplace(variable, value);
}

}  // namespace lockstep
