// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/doctor/doctor.h"
#include "tests/cluster/s3_server.h"
#include "tests/support/cluster.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

/// Returns the finding of that name in the output of doctor --json. If there is none, its name is "absent".
Finding finding(const Outcome& outcome, const std::string& name) {
  if (!nlohmann::json::accept(outcome.out)) return {"no report", Verdict::ok, outcome.out + outcome.errors};
  for (const Finding& finding : findings_from_json(outcome.out))
    if (finding.name == name) return finding;
  return {"absent", Verdict::ok, outcome.out};
}

TEST(DoctorInCluster, TriesWhatSnapshotsDoWithABucket) {
  const std::string python = python_with_moto();
  if (python.empty())
    LOCKSTEP_SKIP_OR_FAIL("no Python with moto[server]; scripts/install_deps.sh --cluster makes one");
  const TemporaryDirectory directory;
  const S3Server server(python, directory / "certificate");
  ASSERT_TRUE(server.runs()) << "tests/cluster/s3_server.py did not start";
  const auto examine = [&](const std::string& bucket, const std::string& user) {
    return run_command("cd " + directory.path() + " && HOME=" + directory.path() +
                       " AWS_REGION=us-east-1 no_proxy=127.0.0.1" + " AWS_ENDPOINT_URL=" + server.plain() +
                       " AWS_ACCESS_KEY_ID=" + server.access_key(user) +
                       " AWS_SECRET_ACCESS_KEY=" + server.secret_key(user) + " " + program("doctor") +
                       " --json snapshot.path=s3://" + bucket + "/run");
  };
  const std::string name = "bucket snapshot.path";
  const Finding writer = finding(examine(server.bucket(), "writer"), name);
  EXPECT_EQ(writer.name, name) << writer.found;
  EXPECT_EQ(writer.verdict, Verdict::ok) << writer.found;

  const Outcome refused = examine(server.bucket(), "reader");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(finding(refused, name).verdict, Verdict::problem);
  EXPECT_NE(finding(refused, name).found.find("writing an object"), std::string::npos)
      << finding(refused, name).found;
  EXPECT_EQ((refused.out + refused.errors).find(server.secret_key("reader")), std::string::npos);

  EXPECT_EQ(finding(examine("no-such-bucket", "writer"), name).verdict, Verdict::problem);
}

TEST(DoctorInCluster, HostsCallEachOther) {
  if (run_command("unshare --uts true").exit_code != 0)
    LOCKSTEP_SKIP_OR_FAIL("this user may make no namespace (unshare --uts)");
  if (!has_mpirun()) LOCKSTEP_SKIP_OR_FAIL("there is no mpirun");
  if (run_command("ip -o addr show scope global | grep -q .").exit_code != 0)
    LOCKSTEP_SKIP_OR_FAIL("this machine has no address but loopback");
  const TemporaryDirectory directory;
  const Outcome outcome =
      run_command("cd " + directory.path() + " && " + mpirun(4) +
                  "unshare --uts sh -c 'hostname node$((OMPI_COMM_WORLD_RANK / 2)) && exec " +
                  program("doctor") + " --json'");
  const Finding hosts = finding(outcome, "hosts");
  EXPECT_EQ(hosts.verdict, Verdict::ok) << hosts.found;
  EXPECT_EQ(hosts.found, "all 2 reach each other at all addresses") << outcome.errors;
  EXPECT_NE(finding(outcome, "ranks").found.find("ranks 2-3 on node1: "), std::string::npos)
      << finding(outcome, "ranks").found;
  for (const char* name : {"disk log.dir @ node0", "disk log.dir @ node1"})
    EXPECT_EQ(finding(outcome, name).name, name);
}

}  // namespace
}  // namespace lockstep
