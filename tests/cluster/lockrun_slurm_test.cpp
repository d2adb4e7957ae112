// SPDX-License-Identifier: Apache-2.0
// lockrun inside an allocation of Slurm's own daemons.
#include <gtest/gtest.h>

#include "cluster/slurm_cluster.h"
#include "support/cluster.h"

namespace lockstep {
namespace {

TEST(LockrunInSlurm, RestartsARankThatWasKilledOnAnyNode) {
  if (const std::string missing = SlurmCluster::what_is_missing(); !missing.empty())
    LOCKSTEP_SKIP_OR_FAIL(missing);
  const SlurmCluster cluster;
  std::filesystem::create_directory(cluster / "job");
  const Outcome outcome = cluster.run("salloc -N 2 --ntasks-per-node=1 " + program("lockrun") + " -- " +
                                      program("elastic_rank") + " " + (cluster / "job") + " 12 0:1:7:kill");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(read_text(cluster / "job/starts"), "0 2 0\n1 2 5\n") << outcome.errors;
  EXPECT_NE(outcome.errors.find("lockrun: rank 1 (host node2"), std::string::npos) << outcome.errors;
}

}  // namespace
}  // namespace lockstep
