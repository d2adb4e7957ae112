// SPDX-License-Identifier: Apache-2.0
// Starts MPI jobs that must fail, and checks what their user would see. Jobs have a deadline of 600 s unless
// a task sets another. A job that is not ended runs into the timeout of this test.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/core/error.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

struct Job {
  std::string output;
  std::string first_line;  ///< first line of a rank; mpirun may print its own notice of the end before it
  int exit_code = -1;
};

class MpiFailures : public testing::Test {
 protected:
  void SetUp() override {
    // Open MPI leaves its own shared-memory segments behind when a job is aborted. Here they are in a
    // directory that is removed.
    ::setenv("OMPI_MCA_btl_vader_backing_directory", directory_.path().c_str(), 1);
  }
  void TearDown() override {
    std::string process_id;
    EXPECT_TRUE(std::ifstream(directory_ / "process_id") >> process_id);
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      EXPECT_FALSE(entry.path().filename().string().starts_with("lockstep-" + process_id + "-"))
          << entry.path() << " was left behind";
  }

  /// Runs this task on three ranks.
  Job run(const std::string& task) const {
    const Outcome outcome = run_command(
        concat(LOCKSTEP_MPIRUN " 3 '", program("mpi_ranks"), "' ", task, " '", directory_.path(), "' 2>&1"),
        3600);
    Job job{.output = outcome.out, .first_line = {}, .exit_code = outcome.exit_code};
    const size_t begin = std::min(job.output.find("[rank "), job.output.size());
    job.first_line = job.output.substr(begin, job.output.find('\n', begin) - begin);
    return job;
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(MpiFailures, ARankThatThrowsEndsTheJobAndSpeaksFirst) {
  const Job job = run("throw");
  EXPECT_EQ(job.exit_code, 1) << job.output;
  EXPECT_NE(job.first_line.find("[rank 1] error: the loss of replica 1 exploded"), std::string::npos)
      << job.output;
}

TEST_F(MpiFailures, AKilledRankEndsTheJob) {
  const Job job = run("kill");
  EXPECT_NE(job.exit_code, 0);
  EXPECT_NE(job.output.find("signal 9"), std::string::npos) << job.output;
}

TEST_F(MpiFailures, ADeadlineNamesTheRankThatDidNotCome) {
  const Job job = run("deadline");
  EXPECT_EQ(job.exit_code, 1) << job.output;
  for (const char* part : {"error: barrier of 0 bytes, collective 2: waited 1 s",
                           "rank 1 never entered collective 2 (barrier, 0 bytes), its last was 1 (barrier)"})
    EXPECT_NE(job.first_line.find(part), std::string::npos) << job.output;
}

TEST_F(MpiFailures, DifferentConfigurationsAreRefusedByKeyAndValue) {
  const Job job = run("configurations");
  EXPECT_EQ(job.exit_code, 2) << job.output;
  EXPECT_NE(job.first_line.find("error: the ranks differ in the configuration: rank 0 has 'train.seed = 7', "
                                "rank 2 has 'train.seed = 8'"),
            std::string::npos)
      << job.output;
}

}  // namespace
}  // namespace lockstep
