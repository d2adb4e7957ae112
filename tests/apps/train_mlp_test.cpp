// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace lockstep {
namespace {

class TrainMlp : public testing::Test {
 protected:
  std::string train(const std::string& arguments, const std::string& run = "run") const {
    return program("train_mlp") + " " + arguments + " log.dir=" + (directory_ / run) +
           " --fresh snapshot.path=none";
  }

  nlohmann::json line(int64_t number, const std::string& run = "run") const {
    std::ifstream file(directory_ / (run + "/metrics.jsonl"));
    std::string text;
    for (int64_t i = 0; i < number; ++i) std::getline(file, text);
    return nlohmann::json::parse(text);
  }

  TemporaryDirectory directory_;
};

TEST_F(TrainMlp, PrintsTheTutorialsLineAndLearns) {
  const Outcome outcome = run_command(train("10 5"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (int epoch = 0; epoch < 10; ++epoch)
    EXPECT_NE(outcome.out.find("[CPU0] Epoch " + std::to_string(epoch) + " | Batchsize: 32 | Steps: 64\n"),
              std::string::npos);
  EXPECT_EQ(outcome.out.find("Epoch 10"), std::string::npos);
  EXPECT_EQ(line(641)["done"], true);
  // The targets are uniform noise. The best mean loss of an epoch is their variance, 1/12.
  double mean = 0.0;
  for (int step = 577; step <= 640; ++step) mean += line(step)["loss"].get<double>() / 64;
  EXPECT_LT(mean, 1.5 / 12) << "the mean loss of the last epoch";
  EXPECT_GT(line(1)["loss"].get<double>(), mean);
}

TEST_F(TrainMlp, LearnsInSixteenBits) {
  ASSERT_EQ(run_command(train("4 4")).exit_code, 0);
  for (const char* precision : {"bf16", "fp16"}) {
    const Outcome outcome = run_command(train(std::string("4 4 train.precision=") + precision, precision));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_NE(line(256, precision)["loss_bits"], line(256)["loss_bits"]);
    // The loss is about 0.1, and the outputs were rounded to 2^-9.
    EXPECT_NEAR(line(256, precision)["loss"].get<double>(), line(256)["loss"].get<double>(), 0.01)
        << precision;
  }
  EXPECT_EQ(line(256, "fp16")["skipped_steps"], 0);
}

TEST_F(TrainMlp, HasNothingToComputeAgain) {
  const Outcome outcome = run_command(train("1 1 train.recompute=block"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("train.recompute = block: "), std::string::npos) << outcome.errors;
}

TEST_F(TrainMlp, TakesItsArgumentsByPositionAndByName) {
  for (const char* arguments : {"3 1 --batch_size 64", "--total-epochs 3 --save_every 1 --batch-size=64"}) {
    const Outcome outcome = run_command(train(arguments));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_NE(outcome.out.find("[CPU0] Epoch 2 | Batchsize: 64 | Steps: 32\n"), std::string::npos)
        << outcome.out;
  }
  for (const char* arguments : {"many", "3 1 2", "3 1 --batch_size 0", "--epochs 3"}) {
    const Outcome outcome = run_command(train(arguments));
    EXPECT_EQ(outcome.exit_code, 2) << arguments << ": " << outcome.errors;
  }
}

TEST_F(TrainMlp, WrongArgumentsAreToldInWords) {
  for (const auto& [arguments, said] :
       {std::pair("five 10", "total_epochs: expected a whole number from 1 up, not 'five'"),
        std::pair("3 0", "save_every: expected a whole number from 1 up, not '0'"),
        std::pair("3 1 quickstart.ini", "did you mean --config quickstart.ini?"),
        std::pair("train.seed=-1", "train.seed: must be at least 0, not -1")}) {
    const Outcome outcome = run_command(train(arguments));
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_NE(outcome.first_error_line().find(said), std::string::npos) << outcome.errors;
  }
  const Outcome seed = run_command(program("generate") + " --snapshot x --seed -1");
  EXPECT_EQ(seed.exit_code, 2);
  EXPECT_NE(seed.first_error_line().find("--seed: expected a whole number from 0 up, not '-1'"),
            std::string::npos)
      << seed.errors;
}

TEST_F(TrainMlp, ThousandsOfEpochsAreToldInAFewLines) {
  const Outcome outcome = run_command(train("400 100 train.eval_every=-1"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_LT(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 60) << outcome.out;
  // The last line has one epoch or several, depending on the speed of the machine.
  EXPECT_TRUE(outcome.out.ends_with("399 | Batchsize: 32 | Steps: 64\n")) << outcome.out;
  EXPECT_NE(outcome.errors.find(" samples/s "), std::string::npos) << outcome.errors;
  EXPECT_EQ(line(64 * 3)["epoch"], 2);
  EXPECT_EQ(line(64 * 3 + 1)["epoch"], 3);
  EXPECT_GT(line(1)["time"], 1.7e9);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "run/rank1.log"));
}

TEST_F(TrainMlp, PrintsItsConfigurationAndTrainsNothing) {
  const std::string words = "7 --batch-size 64 train.seed=3";
  const Outcome printed = run_command(train(words) + " --print-config");
  ASSERT_EQ(printed.exit_code, 0) << printed.errors;
  EXPECT_FALSE(std::filesystem::exists(directory_ / "run"));
  for (const char* text : {"[train]\n", "\nepochs = 7\n", "\nbatch_size = 64\n", "\nseed = 3\n"})
    EXPECT_NE(printed.out.find(text), std::string::npos) << printed.out;
  write_text(directory_ / "printed.ini", printed.out);
  const Outcome again =
      run_command(program("train_mlp") + " --print-config --config " + (directory_ / "printed.ini"));
  EXPECT_EQ(again.out, printed.out) << again.errors;
}

TEST(Programs, TellTheirVersion) {
  for (const char* name : {"train_gpt", "train_mlp", "generate", "evaluate", "doctor", "lockrun"}) {
    const Outcome outcome = run_command(program(name) + " --version");
    EXPECT_EQ(outcome.exit_code, 0) << name << outcome.errors;
    EXPECT_EQ(outcome.out.find("Lockstep 0."), 0U) << name << ": " << outcome.out;
    EXPECT_NE(outcome.out.find("CUDA"), std::string::npos) << outcome.out;
  }
}

TEST(Programs, ABenchmarkOfNothingIsAMistake) {
  if (!std::filesystem::exists(program("bench_kernels"))) GTEST_SKIP() << "bench_kernels is not built";
  const Outcome outcome = run_command(program("bench_kernels") + " --quick --filter nosuch");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("--filter nosuch"), std::string::npos) << outcome.errors;
}

TEST_F(TrainMlp, EveryRankPrintsAndBitsDoNotDependOnRanks) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const std::string arguments = "3 1 dist.replicas=5";
  for (int ranks : {1, 2, 3, 5}) {
    const Outcome outcome = run_command(mpirun(ranks) + train(arguments, std::to_string(ranks)));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_NE(outcome.out.find("[CPU" + std::to_string(rank) + "] Epoch 2 | Batchsize: 32 | Steps: 13\n"),
                std::string::npos)
          << outcome.out;
    EXPECT_EQ(line(40, std::to_string(ranks))["parameters_hash"], line(40, "1")["parameters_hash"]);
  }
}

}  // namespace
}  // namespace lockstep
