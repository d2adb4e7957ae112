// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/world.h"

#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/mpi_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

/// Returns the error that all ranks get if they hold these texts. It is empty if the texts agree.
std::string difference(const std::vector<std::string>& texts) {
  std::vector<std::string> told(texts.size());
  run_ranks(static_cast<int>(texts.size()), [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    try {
      require_equal_on_all_ranks(communicator, "the configuration", texts[rank]);
    } catch (const UserError& failure) {
      told[rank] = failure.what();
    }
  });
  for (const std::string& text : told) EXPECT_EQ(text, told[0]) << "every rank must throw the same text";
  return told[0];
}

TEST(RequireEqual, EqualTextsPass) {
  EXPECT_EQ(difference({"a = 1\nb = 2\n", "a = 1\nb = 2\n", "a = 1\nb = 2\n"}), "");
  EXPECT_EQ(difference({"", ""}), "");
  EXPECT_EQ(difference({"a = 1"}), "");
}

TEST(RequireEqual, TheFirstDifferenceIsNamedWithBothValues) {
  EXPECT_EQ(difference({"a = 1\nb = 2\nc = 3\n", "a = 1\nb = 2\nc = 3\n", "a = 1\nb = 5\nc = 6\n"}),
            "the ranks differ in the configuration: rank 0 has 'b = 2', rank 2 has 'b = 5'");
}

TEST(RequireEqual, AMissingLineIsADifference) {
  EXPECT_EQ(difference({"a = 1\nb = 2\n", "a = 1\n"}),
            "the ranks differ in the configuration: rank 0 has 'b = 2', rank 1 has 'nothing'");
  EXPECT_EQ(difference({"", "a = 1\n"}),
            "the ranks differ in the configuration: rank 0 has 'nothing', rank 1 has 'a = 1'");
}

TEST(World, AloneItIsFirstAndHasAllCores) {
  const World world = World::alone();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_TRUE(world.is_first());
  EXPECT_EQ(world.share_of_cores(), available_cores());
  EXPECT_FALSE(world.has_spare_core(available_cores()));
}

TEST(World, RanksOfAHostShareItsCores) {
  run_ranks(3, [](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    EXPECT_EQ(world.rank(), communicator.rank());
    EXPECT_EQ(world.local_size(), 3);
    EXPECT_EQ(world.is_first(), communicator.rank() == 0);
    EXPECT_GE(world.share_of_cores(), 1);
    EXPECT_LE(world.share_of_cores(), available_cores());
    EXPECT_FALSE(world.has_spare_core(available_cores()));
  });
}

TEST(World, OneOfSeveralProcessesWithoutMpiIsRefused) {
  const auto refusal = [](const std::vector<std::pair<const char*, const char*>>& variables) {
    std::string message;
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    try {
      World::from_environment();
    } catch (const UserError& failure) {
      message = failure.what();
    }
    for (const auto& [name, value] : variables) ::unsetenv(name);
    return message;
  };
  EXPECT_NE(refusal({{"RANK", "1"}, {"WORLD_SIZE", "4"}}).find("use lockrun"), std::string::npos);
  EXPECT_NE(refusal({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}).find("srun --mpi=pmix"),
            std::string::npos);
  const std::string by_pmi2 = refusal({{"SLURM_PROCID", "0"},
                                       {"SLURM_STEP_NUM_TASKS", "2"},
                                       {"PMI_FD", "7"},
                                       {"PMI_RANK", "0"},
                                       {"PMI_SIZE", "2"}});
  EXPECT_EQ(by_pmi2.find("export SLURM_MPI_TYPE=pmix") != std::string::npos, !mpi_understands_pmi2());
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(refusal({{"SLURM_PROCID", "0"}}), "") << "a batch file starts the program without srun";
}

TEST(DistributeGpus, RanksThatSeeTheSameOnesTakeTurns) {
  EXPECT_EQ(detail::distribute_gpus({"a\nb\n", "a\nb\n"}, false), (std::vector{0, 1}));
  EXPECT_EQ(detail::distribute_gpus({"a\nb\n", "c\nd\n", "a\nb\n", "c\nd\n"}, false),
            (std::vector{0, 0, 1, 1}))
      << "two hosts";
  EXPECT_EQ(detail::distribute_gpus({"a\n", "b\n"}, false), (std::vector{0, 0}))
      << "the launcher shows each rank its own GPU";
  EXPECT_EQ(detail::distribute_gpus({"a\nb\n", "a\nb\n", "a\nb\n"}, true), (std::vector{0, 1, 0}));
}

TEST(DistributeGpus, TooFewAreRefusedWithBothNumbers) {
  try {
    detail::distribute_gpus({"a\nb\n", "a\nb\n", "a\nb\n"}, false);
    FAIL() << "nothing was thrown";
  } catch (const UserError& failure) {
    EXPECT_NE(std::string(failure.what()).find("3 ranks of a host see 2 GPUs"), std::string::npos)
        << failure.what();
    EXPECT_NE(std::string(failure.what()).find("LOCKSTEP_SHARE_GPU=1"), std::string::npos) << failure.what();
  }
}

TEST(ClaimMessage, OneOfALaunchSaysIt) {
  const auto claims_in_child = [](const char* message) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(detail::claim_message(message) ? 1 : 0);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 1;
  };
  ::setenv("PMIX_NAMESPACE", concat("launch ", ::getpid()).c_str(), 1);
  EXPECT_TRUE(claims_in_child("the same"));
  EXPECT_TRUE(claims_in_child("the same")) << "the process that claimed it has ended";
  EXPECT_TRUE(detail::claim_message("the same"));
  EXPECT_FALSE(claims_in_child("the same"));
  EXPECT_TRUE(claims_in_child("another cause"));
  ::setenv("PMIX_NAMESPACE", "another launch", 1);
  EXPECT_TRUE(claims_in_child("the same"));
  ::unsetenv("PMIX_NAMESPACE");
}

TEST(OnFirstRank, TheOthersWaitWithoutADeadlineAndHaveItAgainAfterwards) {
  run_ranks(2, [](Communicator& ranks) {
    const World world(ranks.shared_from_this());
    constexpr double seconds = 0.05;
    ranks.set_timeout(seconds);
    const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
    on_first_rank(world, wait);
    EXPECT_EQ(ranks.timeout(), seconds);
    const auto fail = [&] {
      wait();
      throw UserError("the file is damaged");
    };
    EXPECT_THROW(on_first_rank(world, fail), UserError);
    EXPECT_EQ(ranks.timeout(), seconds);
  });
}

TEST(RunProgramDeathTest, ExitCodesTellWhoseMistakeItWas) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto exit_with = [](auto body) { std::exit(run_program(body)); };
  EXPECT_EXIT(exit_with([]() -> int { return 0; }), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_with([]() -> int { return 75; }), testing::ExitedWithCode(75), "");
  EXPECT_EXIT(exit_with([]() -> int { throw UserError("no such key: train.stps"); }),
              testing::ExitedWithCode(2), "^error: no such key: train.stps\n$");
  EXPECT_EXIT(exit_with([]() -> int { throw Error("the sum went wrong"); }), testing::ExitedWithCode(1),
              "^error: the sum went wrong .tests/comm/world_test.cpp:[0-9]+.\n$");
  EXPECT_EXIT(exit_with([]() -> int { throw std::runtime_error("disk on fire"); }),
              testing::ExitedWithCode(1), "^error: disk on fire\n$");
}

TEST(RunProgramDeathTest, OfSeveralProcessesThatCannotRunTheFirstSaysWhy) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto exit_as = [](const char* rank, auto run) {
    ::setenv("SLURM_PROCID", rank, 1);
    ::setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    std::exit(run());
  };
  const auto rank = [] { return run_program([] { return World::from_environment().rank(); }); };
  EXPECT_EXIT(exit_as("0", rank), testing::ExitedWithCode(2), "^error: srun started 2 tasks [^\n]*\n$");
  EXPECT_EXIT(exit_as("1", rank), testing::ExitedWithCode(2), "^$");
  const auto alone = [] {
    ::setenv("PMIX_RANK", std::getenv("SLURM_PROCID"), 1);
    return run_alone([] { return 0; });
  };
  EXPECT_EXIT(exit_as("0", alone), testing::ExitedWithCode(2), "^error: [^\n]* start one[^\n]*\n$");
  EXPECT_EXIT(exit_as("1", alone), testing::ExitedWithCode(2), "^$");
}

}  // namespace
}  // namespace lockstep
