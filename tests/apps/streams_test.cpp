// SPDX-License-Identifier: Apache-2.0
// Standard streams of the programs that are full, closed, or without a reader.
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "tests/support/program.h"
#include "tests/support/run_result.h"

namespace lockstep {
namespace {

class Streams : public testing::Test {
 protected:
  std::string train(const std::string& run, const std::string& more = "") const {
    return program("train_gpt") +
           " data.dataset=sample data.block_size=8 data.train_split=0.995 model.n_layer=1 model.n_head=1 "
           "model.n_embd=8 train.device=cpu train.threads=1 train.batch_size=2 train.eval_every=-1 "
           "train.steps=20 log.dir=" +
           (directory_ / run) + " " + more;
  }

  TemporaryDirectory directory_;
};

TEST_F(Streams, EveryProgramNoticesThatItsOutputIsLost) {
  const std::string commands[] = {"train_gpt --help",
                                  "train_gpt train.steps=1 --print-config",
                                  "train_mlp --version",
                                  "generate --help",
                                  "evaluate --help",
                                  "report --help",
                                  "tokenize --version",
                                  "convert --help",
                                  "doctor --help",
                                  "lockrun --help",
                                  "lockrun --version",
                                  "bench_step --help",
                                  "bench_tokenizer --version",
                                  "1_single_device --help",
                                  "1_single_device 1 2",
                                  "bigram --help",
                                  "check_exercise --help",
                                  train("plan", "--plan").substr(program("").size()),
                                  "train_mlp 1 1 --fresh log.dir=" + (directory_ / "mlp")};
  for (const std::string& command : commands) {
    // Builds with a sanitizer have no tutorial.
    if (!std::filesystem::exists(program(command.substr(0, command.find(' '))))) continue;
    for (const char* lost : {" >/dev/full", " >&-"}) {
      const Outcome outcome = run_command(program(command) + lost);
      EXPECT_EQ(outcome.exit_code, 1) << command << lost;
      EXPECT_NE(outcome.errors.find("cannot write to the standard output"), std::string::npos)
          << command << lost << ":\n"
          << outcome.errors;
    }
  }
}

TEST_F(Streams, ATrainingIsTheSameWithClosedStreams) {
  ASSERT_EQ(run_command(train("open")).exit_code, 0);
  EXPECT_EQ(run_command(train("closed") + " <&- >&- 2>&-").exit_code, 0);
  EXPECT_EQ(read_bits(directory_ / "closed"), read_bits(directory_ / "open"));
  if (!has_mpirun()) return;
  // lockrun's children would otherwise get the descriptor of its socket as their output.
  EXPECT_EQ(run_command(lockrun(1) + train("supervised") + " >&- 2>&-").exit_code, 0);
  EXPECT_EQ(read_bits(directory_ / "supervised"), read_bits(directory_ / "open"));
}

TEST_F(Streams, ATrainingOutlivesTheReaderOfItsMessages) {
  const Outcome outcome = run_command(train("alone") + " 2>&1 | read -r line; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(read_bits(directory_ / "alone").size(), 21u);
  if (!has_mpirun()) return;
  const Outcome supervised = run_command(lockrun(2) + train("supervised", "dist.replicas=2") +
                                         " 2>&1 | read -r line; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(supervised.exit_code, 0);
  EXPECT_EQ(read_bits(directory_ / "supervised").size(), 21u);
}

TEST_F(Streams, ATrainingSavesWhenItsTerminalIsLostButNotUnderNohup) {
  const auto hung_up = [&](const std::string& start, const std::string& run) {
    const std::string metrics = directory_ / run + "/metrics.jsonl";
    return run_command(start + train(run, "train.steps=4000") + " >/dev/null 2>&1 & job=$!; while [ ! -s " +
                       metrics + " ]; do sleep 0.01; done; kill -HUP $job; wait $job");
  };
  EXPECT_EQ(hung_up("", "terminal").exit_code, exit_stopped);
  EXPECT_NE(read_text(directory_ / "terminal/rank0.log").find("stopped on request"), std::string::npos);
  EXPECT_EQ(hung_up("nohup ", "nohup").exit_code, 0);
  // Debian 13's Open MPI loads UCX, whose constructor takes SIGHUP for itself. Without the option,
  // AddressSanitizer refuses a library before its own.
  const std::string with_ucx =
      "nohup env ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=libucs.so.0 ";
  EXPECT_EQ(hung_up(with_ucx, "with_ucx").exit_code, 0);
}

TEST_F(Streams, GenerationEndsWithItsReader) {
  ASSERT_EQ(run_command(train("model")).exit_code, 0);
  const Outcome outcome =
      run_command("yes '{\"prompt\": \"a\"}' | head -n 500 | " + program("generate") + " --snapshot " +
                  (directory_ / "model") +
                  " --threads 1 --tokens 50 --batch-size 1 --input - | head -n 1; exit ${PIPESTATUS[2]}");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.errors.find("error"), std::string::npos) << outcome.errors;
}

}  // namespace
}  // namespace lockstep
