// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/open_mpi.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TEST(OpenMpi, VersionsAreReadFromWhatLaunchersAndLibrariesPrint) {
  const std::pair<const char*, MpiVersion> cases[] = {
      {"mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/", {"Open MPI", "4.1.4"}},
      {"mpirun (Open MPI) 5.0.7", {"Open MPI", "5.0.7"}},
      {"mpirun (Open MPI) 5.0.8rc1", {"Open MPI", "5.0.8"}},
      {"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", {"Open MPI", "4.1.4"}},
      {"HYDRA build details:\n    Version:   4.0.2\n", {"MPICH", "4.0.2"}},
      {"Intel(R) MPI Library for Linux* OS, Version 2021.11", {"Intel", "2021.11"}},
      {"", {}}};
  for (const auto& [text, version] : cases) EXPECT_EQ(MpiVersion::in(text), version) << text;
  EXPECT_EQ(MpiVersion::in("mpirun (Open MPI) 10.1.0").major(), 10);
  EXPECT_EQ(MpiVersion().major(), 0);
}

// Variables of both versions are set at once, because each version reads only its own.
TEST(OpenMpi, VariablesAreThoseOfBothVersionsAndTheUsersComeFirst) {
  ::setenv("PRTE_MCA_prte_tmpdir_base", "/mine", 1);
  const auto variables = OpenMpiEnvironment().allow_root().on_this_host("/run").variables();
  ::unsetenv("PRTE_MCA_prte_tmpdir_base");
  EXPECT_EQ(variables.at("OMPI_MCA_orte_tmpdir_base"), "/run");
  EXPECT_FALSE(variables.contains("PRTE_MCA_prte_tmpdir_base"));
  for (const char* prefix : {"OMPI", "PRTE"})
    for (const char* end : {"", "_CONFIRM"})
      EXPECT_EQ(variables.contains(concat(prefix, "_ALLOW_RUN_AS_ROOT", end)) ||
                    std::getenv(concat(prefix, "_ALLOW_RUN_AS_ROOT", end).c_str()) != nullptr,
                ::geteuid() == 0);
}

}  // namespace
}  // namespace lockstep
