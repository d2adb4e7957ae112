// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tensor/safetensors.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

const std::string sources = std::string(LOCKSTEP_SOURCE_DIR) + "/apps/tutorial/";

class Tutorial : public testing::Test {
 protected:
  /// The command of one step, which writes its checkpoint to the test's directory.
  std::string step(const std::string& name, const std::string& arguments,
                   const std::string& launcher = "") const {
    return "cd " + directory_.path() + " && " + launcher + program(name) + " " + arguments;
  }

  Outcome run(const std::string& command) const {
    Outcome outcome = run_command(command);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.errors;
    return outcome;
  }

  std::string parameters_after(const std::string& command) const {
    std::filesystem::remove(checkpoint());
    run(command);
    return read_text(checkpoint());
  }

  std::string checkpoint() const { return directory_ / "checkpoint.safetensors"; }

  TemporaryDirectory directory_;
};

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

bool has(const Outcome& outcome, const std::string& line) {
  return outcome.out.find(line + "\n") != std::string::npos;
}

/// The numbers behind "Loss: ", in order.
std::vector<double> losses(const std::string& text) {
  std::vector<double> values;
  const std::string mark = "Loss: ";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1))
    values.push_back(std::stod(text.substr(at + mark.size())));
  return values;
}

TEST_F(Tutorial, OneDeviceLearnsAndSaves) {
  const Outcome outcome = run(step("1_single_device", "12 5"));
  for (int epoch = 0; epoch < 12; ++epoch) {
    EXPECT_TRUE(has(outcome, "[CPU0] Epoch " + std::to_string(epoch) + " | Batchsize: 32 | Steps: 64"));
    const bool saves = epoch % 5 == 0 || epoch == 11;
    const std::string saved =
        "Epoch " + std::to_string(epoch) + " | Training checkpoint saved at checkpoint.safetensors";
    EXPECT_EQ(has(outcome, saved), saves) << epoch;
  }
  // The targets are uniform noise: the best a model can do is their variance, 1/12.
  const std::vector<double> loss = losses(outcome.out);
  ASSERT_EQ(loss.size(), 12U);
  EXPECT_LT(loss.back(), loss.front());
  EXPECT_LT(loss.back(), 1.1 / 12);

  const SafeTensors saved = load_safetensors(checkpoint());
  ASSERT_EQ(saved.tensors.size(), 2U);
  EXPECT_EQ(saved.tensors[0].tensor.size() + saved.tensors[1].tensor.size(), 21);
}

TEST_F(Tutorial, EveryRankSpeaksAndTheFirstSaves) {
  const Outcome outcome = run(step("2_multi_device", "3 1 --batch_size 16 --ranks 3 --replicas 4"));
  for (const char* rank : {"0", "1", "2"})
    EXPECT_TRUE(has(outcome, std::string("[CPU") + rank + "] Epoch 2 | Batchsize: 16 | Steps: 32"))
        << outcome.out;
  // Three lines a epoch from the ranks, a loss and a checkpoint from the first.
  EXPECT_EQ(lines_of(outcome.out), 3 * (3 + 2)) << outcome.out;
}

TEST_F(Tutorial, ReplicasFixTheBits) {
  const std::string one = parameters_after(step("2_multi_device", "3 1 --replicas 4 --ranks 1"));
  EXPECT_FALSE(one.empty());
  for (const char* ranks : {"2", "3", "4"})
    EXPECT_EQ(parameters_after(step("2_multi_device", std::string("3 1 --replicas 4 --ranks ") + ranks)), one)
        << ranks << " ranks";
  EXPECT_NE(parameters_after(step("2_multi_device", "3 1 --replicas 3 --ranks 1")), one);
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  EXPECT_EQ(parameters_after(step("2_multi_device", "3 1 --replicas 4", mpirun(2))), one) << "mpirun";
}

TEST_F(Tutorial, OneReplicaIsOneDevice) {
  EXPECT_EQ(parameters_after(step("2_multi_device", "3 1 --ranks 1")),
            parameters_after(step("1_single_device", "3 1")));
}

TEST_F(Tutorial, RefusesBadArguments) {
  for (const char* arguments : {"many", "3 1 2", "3 1 --batch_size 0", "--epochs 3", "99999999999"})
    for (const char* name : {"1_single_device", "2_multi_device"}) {
      const Outcome outcome = run_command(step(name, arguments));
      EXPECT_EQ(outcome.exit_code, 2) << name << " " << arguments;
      EXPECT_TRUE(outcome.errors.starts_with("error: ")) << outcome.errors;
    }
  EXPECT_EQ(run_command(step("1_single_device", "--ranks 2")).exit_code, 2);
  EXPECT_EQ(run_command(step("2_multi_device", "1 1 --ranks 4 --replicas 3")).exit_code, 2);
  EXPECT_EQ(run_command(step("2_multi_device", "--help")).exit_code, 0);
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome outcome = run_command(step("2_multi_device", "1 1 --ranks 3", mpirun(2)));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
  EXPECT_NE(outcome.errors.find("3 ranks were asked for, but the launcher started 2"), std::string::npos);
}

TEST(TutorialSources, AreShortAndDifferInWhatTheStepTeaches) {
  for (const char* name : {"1_single_device.cpp", "2_multi_device.cpp"})
    EXPECT_LT(lines_of(read_text(sources + name)), 100) << name;
  const Outcome outcome =
      run_command("diff " + sources + "1_single_device.cpp " + sources + "2_multi_device.cpp");
  ASSERT_EQ(outcome.exit_code, 1) << outcome.errors;
  int64_t before = 0;
  int64_t after = 0;
  for (size_t at = 0; at < outcome.out.size(); at = outcome.out.find('\n', at) + 1) {
    before += outcome.out[at] == '<' ? 1 : 0;
    after += outcome.out[at] == '>' ? 1 : 0;
  }
  EXPECT_GT(after, 0);
  EXPECT_LE(std::max(before, after), 12) << outcome.out;
}

TEST(TutorialSources, TheTextShowsTheirDifference) {
  const Outcome outcome = run_command("diff -U 0 " + sources + "1_single_device.cpp " + sources +
                                      "2_multi_device.cpp | tail -n +3");
  ASSERT_FALSE(outcome.out.empty());
  const std::string text = read_text(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/tutorial/README.md");
  EXPECT_NE(text.find("```diff\n" + outcome.out + "```"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace lockstep
