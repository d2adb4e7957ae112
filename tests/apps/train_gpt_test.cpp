// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>

#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/kernels/processor.h"
#include "tests/support/program.h"
#include "tests/support/run_result.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

int count_of(const std::string& part, const std::string& text) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Tests of a tiny run of train_gpt on the built-in text. It takes half a second on one rank.
class TrainGpt : public testing::Test {
 protected:
  std::string arguments(const std::string& run) const {
    return " data.dataset=sample data.block_size=16 data.train_split=0.995 model.n_layer=2 model.n_head=2 "
           "model.n_embd=16 model.dropout=0.1 train.steps=40 train.batch_size=2 train.warmup_steps=3 "
           "train.eval_every=20 dist.replicas=4 train.threads=1 log.every_steps=100 log.dir=" +
           (directory_ / run);
  }

  std::string train(const std::string& run) const { return program("train_gpt") + arguments(run); }

  /// Runs train("run") on ranks of which the first has other settings than the others. A shell selects them,
  /// because Open MPI 5.0.7 crashes if mpirun gets two programs.
  Outcome run_differing(int ranks, const std::string& first, const std::string& others) const {
    return run_command(mpirun(ranks) + "sh -c 'if [ $OMPI_COMM_WORLD_RANK = 0 ]; then exec " + train("run") +
                       first + "; else exec " + train("run") + others + "; fi'");
  }

  /// Returns the loss bits of every step, then the hash. They are equal in equal runs.
  std::vector<std::string> bits(const std::string& run) const { return read_bits(directory_ / run); }

  TemporaryDirectory directory_;
};

TEST_F(TrainGpt, TheCommandForTheTrainedModelCanBePastedIntoAShell) {
  const std::string there = "cd " + directory_.path() + " && export HOME=$PWD && ";
  // The last word of this test's arguments is log.dir=FOLDER/NAME.
  for (const std::string name : {"'don'\\''t; ls #2'", "'für $x *'", "a log.dir='~/of mine'"}) {
    const Outcome trained = run_command(there + train(name) + " train.steps=3 train.eval_every=-1");
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
    const std::string before = "the trained model: ";
    const std::string command = trained.errors.substr(trained.errors.rfind(before) + before.size());
    const Outcome used = run_command(there + trimmed(command) + " --prompt a --tokens 1 --threads 1");
    EXPECT_EQ(used.exit_code, 0) << command << used.errors;
  }
  EXPECT_TRUE(fs::exists(directory_ / "of mine"));
}

TEST_F(TrainGpt, OneToFourRanksHaveTheSameBits) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  ASSERT_EQ(run_command(train("alone")).exit_code, 0);
  const auto alone = bits("alone");
  ASSERT_EQ(alone.size(), 41u);
  for (int ranks : {1, 2, 3, 4}) {
    const std::string name = "ranks" + std::to_string(ranks);
    const Outcome outcome = run_command(mpirun(ranks) + train(name));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_EQ(bits(name), alone) << ranks << " ranks";
  }
}

TEST_F(TrainGpt, EachRankLogsItsStartItsPeaksOfMemoryAndItsEnd) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const auto log = [&](const std::string& run, int rank) {
    return read_text(directory_ / run + concat("/rank", rank, ".log"));
  };
  const std::string command = mpirun(2) + train("run") + " train.steps=5 train.eval_every=-1 --fresh";
  const Outcome outcome = run_command("LOCKSTEP_RESTART_COUNT=3 " + command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (int rank : {0, 1})
    expect_contains(log("run", rank), {concat(" rank ", rank, " of 2 on ", host_name(), ", pid "),
                                       ", restart 3: " + processor_name() + ", 1 thread; " + version_text(),
                                       " step 1: peak memory: ", " resident; cpu: activations ", ", total ",
                                       "parameters " + bits("run").back(), " done after step 5\n"});
  for (const char* detail : {"pid", "peak memory", "done after"})
    EXPECT_EQ(outcome.errors.find(detail), std::string::npos) << outcome.errors;

  // The first rank reports a failure that all ranks have.
  const Outcome failing = run_command(command + " train.learning_rate=1e30");
  EXPECT_EQ(failing.exit_code, 2) << failing.errors;
  for (int rank : {0, 1}) {
    expect_contains(log("run.1", rank), {" done after step 5\n"});
    expect_contains(log("run", rank), {"peak memory: ", " failed after step ", ": the loss is "});
    EXPECT_EQ(log("run", rank).find("done"), std::string::npos);
  }

  // A host that does not share log.dir may be unable to create it.
  const Outcome apart =
      run_differing(2, " --fresh train.steps=3", " --fresh train.steps=3 log.dir=/dev/null/x");
  EXPECT_EQ(apart.exit_code, 0) << apart.errors;
  EXPECT_EQ(count_of("warning", apart.errors), 1) << apart.errors;
  expect_contains(apart.errors, {"[rank 1] warning: log.dir: /dev/null/x cannot be created"});
}

TEST_F(TrainGpt, StoppedOnRequestItLeavesWithASnapshotOfThatStepAndGoesOnElsewhere) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const std::string steps = " train.steps=800 train.eval_every=200";
  ASSERT_EQ(run_command(train("undisturbed") + steps).exit_code, 0);
  const std::string snapshots =
      steps + " snapshot.path=" + (directory_ / "snapshots") + " snapshot.every_steps=0 ";
  const std::string metrics = directory_ / "stopped/metrics.jsonl";
  // The newest process is one of the ranks. If one rank is asked, all ranks stop.
  for (const auto& [ranks, signal] : {std::pair(3, "USR1"), std::pair(2, "TERM")}) {
    const Outcome outcome =
        run_command(mpirun(ranks) + train("stopped") + snapshots + "& job=$!; lines=$(cat " + metrics +
                    " 2>/dev/null | wc -l); while kill -0 $job 2>/dev/null && [ $(cat " + metrics +
                    " 2>/dev/null | wc -l) -le $((lines + 5)) ]; do sleep 0.01; done; pkill -" + signal +
                    " -n -f '^" + program("train_gpt") + ".*" + (directory_ / "stopped") + "'; wait $job");
    EXPECT_EQ(outcome.exit_code, 75) << outcome.errors;
    EXPECT_NE(outcome.errors.find("stopped on request after step"), std::string::npos) << outcome.errors;
    EXPECT_LT(bits("stopped").size(), 800U) << "the run ended before it was asked to stop";
  }
  const Outcome last = run_command(mpirun(4) + train("stopped") + snapshots);
  ASSERT_EQ(last.exit_code, 0) << last.errors;
  EXPECT_NE(last.errors.find("resuming after step"), std::string::npos) << last.errors;
  EXPECT_EQ(bits("stopped"), bits("undisturbed"));
}

TEST_F(TrainGpt, StoppedOnRequestWithoutAPlaceForSnapshotsItHasFailed) {
  const std::string metrics = directory_ / "run/metrics.jsonl";
  const Outcome outcome = run_command(
      train("run") + " snapshot.path=none train.steps=1000000 & job=$!; while kill -0 $job && [ ! -s " +
      metrics + " ]; do sleep 0.01; done; kill -TERM $job; wait $job");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.errors;
  EXPECT_NE(outcome.errors.find("snapshot.path is none"), std::string::npos) << outcome.errors;
}

TEST_F(TrainGpt, ARestartGoesOnAlsoWhereTheRunWasToBeginAnew) {
  const std::string snapshots =
      " --fresh snapshot.every_steps=10 snapshot.keep=4 snapshot.path=" + (directory_ / "snapshots");
  ASSERT_EQ(run_command(train("run") + snapshots).exit_code, 0);
  fs::remove_all(directory_ / "snapshots/step-00000040");
  const Outcome restarted = run_command("LOCKSTEP_RESTART_COUNT=1 " + train("run") + snapshots);
  EXPECT_EQ(restarted.exit_code, 0);
  EXPECT_NE(restarted.errors.find("resuming after step 30"), std::string::npos) << restarted.errors;
  const Outcome anew = run_command("LOCKSTEP_RESTART_COUNT=0 " + train("run") + snapshots);
  EXPECT_EQ(anew.exit_code, 0);
  EXPECT_EQ(anew.errors.find("resuming"), std::string::npos) << anew.errors;
}

TEST_F(TrainGpt, GenerateWritesFromItsSnapshot) {
  // The user has not set where the model is kept.
  const Outcome trained = run_command(train("run"));
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  const std::string run = directory_ / "run", snapshots = run + "/snapshots";
  EXPECT_TRUE(fs::exists(snapshots + "/best/model.safetensors"));
  const std::string last_line =
      trained.errors.substr(trained.errors.rfind('\n', trained.errors.size() - 2) + 1);
  EXPECT_NE(last_line.find("generate --snapshot " + run), std::string::npos) << last_line;
  const std::string words = read_text(run + "/rank0.log"), lines = read_text(run + "/metrics.jsonl");
  const Outcome again = run_command(train("run"));
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.errors.find("already finished"), std::string::npos) << again.errors;
  EXPECT_NE(again.errors.find(last_line), std::string::npos) << again.errors;
  EXPECT_EQ(read_text(run + "/rank0.log"), words);
  EXPECT_EQ(read_text(run + "/metrics.jsonl"), lines);
  const std::string generate = program("generate") + " --snapshot " + run + " --prompt '- ' --tokens 20 ";
  for (const std::string& place : {snapshots, snapshots + "/best"})
    EXPECT_EQ(run_command(program("generate") + " --snapshot " + place + " --prompt '- ' --tokens 20 ").out,
              run_command(generate).out);
  const Outcome text = run_command(generate);
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_EQ(text.out.substr(0, 2), "- ");
  EXPECT_EQ(text.out.size(), 2u + 20u + 1u);
  EXPECT_EQ(run_command(generate + "--threads 2").out, text.out) << "threads must not change the text";
  EXPECT_NE(run_command(generate + "--seed 2").out, text.out);
  EXPECT_EQ(run_command(generate + "--temperature 0 --seed 1").out,
            run_command(generate + "--top-k 1 --seed 2").out);
  const Outcome unknown = run_command(program("generate") + " --snapshot " + snapshots + " --prompt '$'");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.first_error_line().find("--prompt"), std::string::npos) << unknown.errors;
}

TEST_F(TrainGpt, ADiskThatGetsFullIsReportedTrainingGoesOnAndTheEndIsAFailure) {
  ASSERT_EQ(run_command(train("undisturbed")).exit_code, 0);
  // No file may grow beyond 128 KiB. The flight record and the metrics fit, but the optimizer's file does
  // not.
  const Outcome outcome = run_command("trap '' XFSZ; ulimit -f 128; " + train("full") +
                                      " model.n_embd=64 snapshot.path=" + (directory_ / "snapshots") +
                                      " snapshot.every_steps=20");
  EXPECT_EQ(outcome.exit_code, 1) << "the trained model was not saved: " << outcome.errors;
  EXPECT_NE(outcome.errors.find("could not be written"), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("training continues"), std::string::npos) << outcome.errors;
  EXPECT_EQ(bits("full").size(), 40u) << "the metrics are complete";
  EXPECT_FALSE(fs::exists(directory_ / "snapshots/step-00000020")) << "a part of a snapshot is still there";
}

TEST_F(TrainGpt, ARankThatDiesEndsTheJobWithinSeconds) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome outcome =
      run_command(mpirun(3) + train("run") + " train.steps=1000000 & job=$!; while [ ! -s " +
                  (directory_ / "run/metrics.jsonl") + " ]; do sleep 0.1; done; pkill -KILL -n -f '^" +
                  program("train_gpt") + ".*" + (directory_ / "run") +
                  "'; begin=$SECONDS; wait $job; code=$?; echo $((SECONDS - begin)); exit $code");
  EXPECT_NE(outcome.exit_code, 0);
  ASSERT_FALSE(outcome.out.empty());
  EXPECT_LE(std::stoi(outcome.out), 60) << "seconds from the death of a rank to the end of the job";
}

struct BadInput {
  const char* what;
  std::string change;
  std::vector<std::string> said;
};

TEST_F(TrainGpt, BadInputNamesItsCauseAndEndsWithTwo) {
  write_text(directory_ / "empty.txt", "");
  write_text(directory_ / "short.txt", "abcdefghij");
  write_text(directory_ / "binary.txt", std::string("ab\0\xff\xfe", 5));
  write_text(directory_ / "bad.ini", "[train]\nstpes = 3\n");
  const BadInput inputs[] = {
      {"unknown key", "train.stepz=3", {"train.stepz", "train.steps"}},
      {"unknown key in a file", "--config " + (directory_ / "bad.ini"), {"bad.ini", "stpes", "steps"}},
      {"wrong type", "train.steps=many", {"train.steps", "many"}},
      {"not a number", "train.learning_rate=nan", {"train.learning_rate"}},
      {"missing corpus", "data.dataset=" + (directory_ / "nothing.txt"), {"data.dataset", "nothing.txt"}},
      {"empty corpus", "data.dataset=" + (directory_ / "empty.txt"), {"empty.txt", "empty"}},
      {"not text", "data.dataset=" + (directory_ / "binary.txt"), {"binary.txt"}},
      {"block longer than the corpus", "data.dataset=" + (directory_ / "short.txt"), {"data.block_size"}},
      {"heads", "model.n_head=3", {"model.n_head", "model.n_embd"}},
      {"vocabulary", "model.vocab_size=3", {"model.vocab_size"}},
      {"precision", "train.precision=fp8", {"train.precision", "fp32, bf16, fp16", "fp8"}},
      {"required resume",
       "snapshot.resume=required snapshot.path=" + (directory_ / "none"),
       {"snapshot.resume"}},
      {"no configuration", "--config nothing.ini", {"nothing.ini"}},
      {"log.dir", "log.dir=/dev/null/x", {"log.dir"}},
      {"a model beyond any memory", "model.n_embd=1000000", {"model.n_embd = 1000000", "needs at least"}},
      {"a model beyond what is left to a rank",
       "train.memory_gib=0.005",
       {"needs at least", "but train.memory_gib = 0.005 leaves a rank 5.1 MiB"}},
      {"a model beyond counting", "model.n_embd=4000000000", {"elements", "lower the sizes of the model"}},
      {"logits beyond any memory",
       "data.dataset=random_tokens model.vocab_size=100000000 train.batch_size=1000000",
       {"needs at least", "logits"}},
      {"a plan without validation data",
       "--plan data.train_split=1 train.patience=3",
       {"train.patience = 3", "needs validation data", "set data.validation"}},
      {"a plan of a warmup beyond the steps",
       "--plan train.steps=0 train.epochs=2 train.warmup_steps=50000",
       {"train.warmup_steps"}},
      {"a folder as a corpus", "data.dataset=/etc", {"data.dataset = /etc", "no *.txt in this folder"}},
  };
  for (const BadInput& input : inputs) {
    const Outcome outcome = run_command(train("run") + " " + input.change);
    EXPECT_EQ(outcome.exit_code, 2) << input.what << ": " << outcome.errors;
    const std::string error = outcome.first_error_line();
    for (const std::string& part : input.said)
      EXPECT_NE(error.find(part), std::string::npos)
          << input.what << ": '" << part << "' is not in: " << outcome.errors;
  }
}

TEST_F(TrainGpt, BadInputOfRanksNamesItsCause) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome few = run_command(mpirun(3) + train("run") + " dist.replicas=2");
  EXPECT_EQ(few.exit_code, 2) << few.errors;
  EXPECT_NE(few.first_error_of_a_rank().find("dist.replicas"), std::string::npos) << few.errors;
  EXPECT_EQ(count_of("dist.replicas = 2", few.errors), 1) << few.errors;

  const Outcome usage = run_command(mpirun(4) + train("run") + " train.stepz=3");
  EXPECT_EQ(usage.exit_code, 2) << usage.errors;
  EXPECT_EQ(count_of("unknown key train.stepz", usage.errors), 1) << usage.errors;

  const Outcome several = run_differing(3, " train.stepx=1", " train.stepy=2");
  EXPECT_EQ(several.exit_code, 2) << several.errors;
  EXPECT_EQ(count_of("unknown key train.stepx", several.errors), 1) << several.errors;
  // The end of the first rank may end the others before they print.
  EXPECT_LE(count_of("unknown key train.stepy", several.errors), 1) << several.errors;

  const Outcome differ = run_differing(2, " train.seed=1", " train.seed=2");
  EXPECT_EQ(differ.exit_code, 2) << differ.errors;
  for (const char* part : {"train.seed = 1", "train.seed = 2", "rank 1"})
    EXPECT_NE(differ.first_error_of_a_rank().find(part), std::string::npos) << differ.errors;
}

TEST_F(TrainGpt, ADamagedSnapshotIsPassedOverAloud) {
  const std::string snapshots = directory_ / "snapshots";
  const std::string command =
      train("run") + " snapshot.every_steps=10 snapshot.keep=3 snapshot.path=" + snapshots;
  ASSERT_EQ(run_command(command).exit_code, 0);
  const auto undisturbed = bits("run");
  fs::resize_file(snapshots + "/step-00000040/model.safetensors", 1000);
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("step-00000040/model.safetensors"), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("resuming after step 30"), std::string::npos) << outcome.errors;
  EXPECT_EQ(bits("run"), undisturbed);
}

TEST_F(TrainGpt, ASnapshotOfAnotherModelIsRefused) {
  const std::string snapshots = " snapshot.path=" + (directory_ / "snapshots");
  ASSERT_EQ(run_command(train("run") + snapshots).exit_code, 0);
  const Outcome outcome = run_command(train("other") + snapshots + " model.n_layer=3");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("model.n_layer = 2 there, 3 here"), std::string::npos) << outcome.errors;
  EXPECT_TRUE(fs::exists(directory_ / "snapshots/step-00000040/model.safetensors"));
}

TEST_F(TrainGpt, HelpNamesEveryKey) {
  const Outcome outcome = run_command(program("train_gpt") + " --help");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* key :
       {"data.dataset", "model.n_layer", "train.steps", "dist.replicas", "snapshot.path", "log.dir"})
    EXPECT_NE(outcome.out.find(key), std::string::npos) << key;
}

TEST(Help, FitsIntoEightyColumnsInAPipe) {
  for (const char* name :
       {"train_gpt", "train_mlp", "generate", "evaluate", "tokenize", "convert", "doctor", "lockrun"}) {
    const Outcome outcome = run_command(program(name) + " --help");
    EXPECT_EQ(outcome.exit_code, 0) << name;
    std::istringstream help(outcome.out);
    for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 80u) << name << ": " << line;
  }
}

}  // namespace
}  // namespace lockstep
