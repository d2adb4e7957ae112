// SPDX-License-Identifier: Apache-2.0
// Training under Slurm's own daemons. Jobs are started, stopped and requeued in several ways, and the bits
// are always those of a run without Slurm.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <sstream>

#include "cluster/slurm_cluster.h"
#include "support/cluster.h"
#include "support/run_result.h"

namespace lockstep {
namespace {

// Settings of a tiny GPT that trains fast.
const std::string tiny_gpt =
    " data.dataset=sample data.block_size=8 model.n_layer=1 model.n_head=2 model.n_embd=16 "
    "train.batch_size=2 "
    "train.warmup_steps=2 train.eval_every=0 dist.replicas=8 log.every_steps=1000 ";

class Slurm : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = SlurmCluster::what_is_missing(); !missing.empty())
      LOCKSTEP_SKIP_OR_FAIL(missing);
    cluster_ = std::make_unique<SlurmCluster>();
  }

  void TearDown() override {
    if (HasFailure() && cluster_) std::cerr << cluster().run("squeue; tail -n 40 *.log *.out").out;
  }

  const SlurmCluster& cluster() const { return *cluster_; }

  /// Returns the result of the program without Slurm, on one rank.
  RunResult direct_result(const std::string& name, const std::string& arguments) const {
    const std::string directory = cluster() / "direct_" + name;
    const Outcome outcome = run_command(
        "cd " + (cluster() / "") + " && " + program(name) + " " + arguments + " log.dir=" + directory, 500);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    return read_result(directory);
  }

  /// Submits a job with sbatch. Returns its number.
  std::string submit(const std::string& arguments) const {
    const Outcome outcome = cluster().run("sbatch --parsable " + arguments);
    expect(outcome.exit_code == 0, "sbatch ", arguments, ": ", outcome.errors);
    return outcome.out.substr(0, outcome.out.find('\n'));
  }

  static void wait_for_steps(const std::string& directory) {
    SlurmCluster::wait_until("the run in " + directory + " is under way",
                             [&] { return read_result(directory).loss_bits.size() >= 20; });
  }

  void wait_for_requeue(const std::string& job) const {
    SlurmCluster::wait_until("job " + job + " is requeued", [&] {
      return cluster().job_value(job, "Restarts") == "1" && cluster().job_value(job, "JobState") == "PENDING";
    });
  }

  /// Starts a requeued job in 2 s. Slurm would hold it back for two minutes. Nodes refuse a job that was
  /// requeued in the same second.
  void release(const std::string& job) const {
    cluster().run("scontrol update StartTime=now+2 JobId=" + job);
  }

  /// Waits until the job has left its nodes. Returns its state.
  std::string state_at_end(const std::string& job) const {
    std::string state;
    SlurmCluster::wait_until("job " + job + " has ended", [&] {
      state = cluster().job_value(job, "JobState");
      return state != "PENDING" && state != "RUNNING" && state != "COMPLETING";
    });
    return state;
  }

 private:
  std::unique_ptr<SlurmCluster> cluster_;
};

const std::string batch_files = LOCKSTEP_SOURCE_DIR "/scripts/slurm/";
const std::string two_nodes = "--nodes=2 --ntasks=2 --ntasks-per-node=1 ";

// MpiDefault is none, as on many clusters.
TEST_F(Slurm, PlainSrunOverTwoNodesGivesTheSameBits) {
  const std::map<std::string, std::string> preparations = {
      {"train_mlp", "export SLURM_MPI_TYPE=pmix PATH=$PATH:" LOCKSTEP_PROGRAM_DIR},
      {"train_gpt", "source " LOCKSTEP_SOURCE_DIR "/scripts/env.sh"}};
  for (const auto& [name, preparation] : preparations) {
    const std::string arguments =
        name == "train_mlp" ? "3 1 dist.replicas=2 snapshot.path=none " : tiny_gpt + "train.steps=30";
    const std::string directory = cluster() / name;
    const Outcome outcome =
        cluster().run(preparation + "; srun -N 2 -n 2 " + name + " " + arguments + " log.dir=" + directory);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_NE(outcome.errors.find("rank 0 on node1: "), std::string::npos) << outcome.errors;
    EXPECT_NE(outcome.errors.find("rank 1 on node2: "), std::string::npos) << outcome.errors;
    const RunResult result = read_result(directory);
    EXPECT_FALSE(result.parameters_hash.empty());
    EXPECT_EQ(result, direct_result(name, arguments)) << name;
  }

  if (run_command("command -v modulecmd").exit_code != 0)
    LOCKSTEP_SKIP_OR_FAIL("there is no modulecmd: scripts/install_deps.sh --cluster");
  const std::string modules = cluster() / "share/lockstep/modulefiles";
  std::filesystem::create_directories(modules);
  std::filesystem::copy(LOCKSTEP_SOURCE_DIR "/scripts/modulefiles", modules);
  std::filesystem::create_directory_symlink(LOCKSTEP_PROGRAM_DIR, cluster() / "bin");
  const Outcome outcome =
      cluster().run("unset LOCKSTEP_BIN; export MODULEPATH=" + modules +
                    "; eval \"$(modulecmd bash load lockstep)\"; command -v 4_multi_node; "
                    "srun -N 2 -n 2 4_multi_node 1 1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const std::string& line : {cluster() / "bin/4_multi_node\n", std::string("[CPU0 = node1:0] Epoch 0 "),
                                  std::string("[CPU1 = node2:0] Epoch 0 ")})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << outcome.out;
}

TEST_F(Slurm, PlainSrunWithoutPmixSaysOnceWhatToDo) {
  const auto expect_one_line = [&](const std::string& command, const std::string& begin,
                                   const std::string& advice) {
    const Outcome outcome = cluster().run(command);
    EXPECT_EQ(outcome.exit_code, 2) << command << "\n" << outcome.errors;
    std::string said;
    std::istringstream lines(outcome.errors);
    for (std::string line; std::getline(lines, line);)
      if (!line.starts_with("srun: ")) said += line + "\n";
    EXPECT_TRUE(said.starts_with(begin)) << command << "\n" << said;
    EXPECT_NE(said.find(advice), std::string::npos) << command << "\n" << said;
    EXPECT_EQ(said.find('\n') + 1, said.size()) << "one line, from one task\n" << command << "\n" << said;
    EXPECT_EQ(outcome.out, "") << command;
  };
  const std::string advice = "export SLURM_MPI_TYPE=pmix";
  for (const std::string name : {"train_mlp", "2_multi_device", "doctor"})
    expect_one_line("srun -N 2 -n 2 " + program(name), "error: srun started 2 tasks ", advice);
  for (const std::string name : {"train_gpt", "3_fault_tolerant", "4_multi_node"})
    expect_one_line("srun -N 2 -n 4 " + program(name), "error: srun started 4 tasks ", advice);
  expect_one_line("srun --mpi=pmi2 -N 2 -n 2 " + program("train_mlp"), "error: srun started 2 tasks ",
                  advice);
  // The program for one device writes one file, so PMIx does not help it.
  for (const std::string type : {"none", "pmix"})
    expect_one_line("srun --mpi=" + type + " -N 2 -n 2 " + program("1_single_device"),
                    "error: this program runs in one process, but 2 were started", "start one");

  for (const std::string type : {"none", "pmi2"}) {
    const Outcome outcome = cluster().run("srun --mpi=" + type + " -n 1 " + program("train_mlp") +
                                          " 1 log.dir=" + (cluster() / type));
    EXPECT_EQ(outcome.exit_code, 0) << "a single task needs no PMIx\n" << outcome.errors;
  }
}

TEST_F(Slurm, BatchFilesRunAsTheyAre) {
  struct BatchFile {
    std::string name;
    std::string ranks;  ///< ranks of the first host, as the printed table names them
  };
  const auto expect_result = [&](const BatchFile& file, const std::string& arguments,
                                 const RunResult& wanted) {
    const std::string directory = cluster() / file.name, printed = cluster() / file.name + ".out";
    const std::string job = submit("--output=" + printed + " " + batch_files + file.name + ".sbatch " +
                                   arguments + " log.dir=" + directory);
    EXPECT_EQ(state_at_end(job), "COMPLETED") << read_text(printed);
    EXPECT_NE(("\n" + read_text(printed)).find("\n" + file.ranks + " on node1: "), std::string::npos)
        << read_text(printed);
    EXPECT_EQ(read_result(directory), wanted) << file.name;
  };
  const std::string gpt = tiny_gpt + "train.steps=20", mlp = "3 1 dist.replicas=2";
  const RunResult wanted = direct_result("train_gpt", gpt);
  for (const BatchFile& file : {BatchFile{"one_node", "ranks 0-3"}, BatchFile{"gpus_2x2", "ranks 0-1"},
                                BatchFile{"gpus_2x4", "ranks 0-3"}, BatchFile{"gpus_4x1", "rank 0"}})
    expect_result(file, gpt, wanted);
  expect_result({"mlp", "rank 0"}, mlp, direct_result("train_mlp", mlp));
}

TEST_F(Slurm, AJobUnderLockrunStoppedByUsr1ComesBackAndEndsWithTheSameBits) {
  const std::string arguments = tiny_gpt + "train.steps=3000";
  const std::string directory = cluster() / "run", printed = cluster() / "train_gpt.out";
  const std::string job =
      submit(two_nodes + "--output=" + printed + " " + batch_files + "lockrun.sbatch " + arguments +
             " log.dir=" + directory + " snapshot.path=" + (cluster() / "snapshots"));
  wait_for_steps(directory);
  EXPECT_EQ(cluster().run("scancel --batch --signal=USR1 " + job).exit_code, 0);
  wait_for_requeue(job);
  EXPECT_EQ(read_result(directory).parameters_hash, "") << "the run ended before it could be stopped";
  release(job);
  EXPECT_EQ(state_at_end(job), "COMPLETED") << read_text(printed);
  EXPECT_EQ(read_result(directory), direct_result("train_gpt", arguments)) << read_text(printed);
  EXPECT_NE(read_text(printed).find("goes back into the queue"), std::string::npos) << read_text(printed);
}

TEST_F(Slurm, EachTaskOfAJobArrayIsStoppedRequeuedAndFinishedByItself) {
  const std::string arguments = tiny_gpt + "train.steps=3000 train.seed=", directory = cluster() / "sweep";
  const std::string job = submit("--array=0-3 " + two_nodes + "--output=%x_%a.out " + batch_files +
                                 "one_node.sbatch " + arguments + "%a log.dir=" + directory);
  // The last task has the number of the array itself, so it is stopped first.
  const std::vector<std::string> seeds = {"3", "0", "1", "2"};
  const auto task = [&](const std::string& seed) { return job + "_" + seed; };
  for (const std::string& seed : seeds) wait_for_steps(directory + "/" + seed);
  ASSERT_EQ(cluster().run("squeue --noheader --format=%A --jobs=" + task("3")).out, job + "\n");
  EXPECT_EQ(cluster().run("scancel --signal=USR1 " + task("3")).exit_code, 0);
  wait_for_requeue(task("3"));
  for (const std::string seed : {"0", "1", "2"}) {
    EXPECT_EQ(cluster().job_value(task(seed), "JobState"), "RUNNING") << "only task 3 was stopped";
    EXPECT_EQ(cluster().run("scancel --batch --signal=USR1 " + task(seed)).exit_code, 0);
  }
  for (const std::string seed : {"0", "1", "2"}) wait_for_requeue(task(seed));
  for (const std::string& seed : seeds) {
    EXPECT_EQ(read_result(directory + "/" + seed).parameters_hash, "")
        << "the run ended before it could be stopped";
    release(task(seed));
  }
  for (const std::string& seed : seeds) {
    const std::string printed = read_text(cluster() / "train_gpt_" + seed + ".out");
    EXPECT_EQ(state_at_end(task(seed)), "COMPLETED") << printed;
    EXPECT_EQ(cluster().job_value(task(seed), "Restarts"), "1") << printed;
    EXPECT_EQ(read_result(directory + "/" + seed), direct_result("train_gpt", arguments + seed)) << printed;
    EXPECT_NE(printed.find("job " + task(seed) + " goes back into the queue"), std::string::npos) << printed;
  }
}

// The site's settings reach sbatch and the job. The task that resumes has the resources of the first one.
TEST_F(Slurm, ASiteWithMpirunThatForbidsRequeueResumesInAnotherJob) {
  const std::string tree = cluster() / "a tree/scripts";
  const std::string arguments = tiny_gpt + "train.steps=3000 snapshot.resume=never";
  std::filesystem::create_directories(tree);
  std::filesystem::copy(LOCKSTEP_SOURCE_DIR "/scripts/slurm", tree + "/slurm");
  std::filesystem::copy(LOCKSTEP_SOURCE_DIR "/scripts/env.sh", tree);
  std::ofstream(tree + "/slurm/site.sh")
      << "launcher=mpirun gpu_type=h100\n"
         "export SBATCH_ACCOUNT=mine SBATCH_MEM_PER_NODE=100 SBATCH_NO_REQUEUE=1\n"
         ": $set_by_nobody\n";
  const std::string printed = cluster() / "first.out", directory = cluster() / "runs/train_gpt_2x2/7";
  const Outcome submitted = cluster().run(
      "\"" + tree + "/slurm/submit\" --parsable --array=7 --time=9 --cpus-per-task=1 " + two_nodes +
      "--output=" + printed + " \"" + tree + "/slurm/gpus_2x2.sbatch\" " + arguments);
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  const std::string job = std::to_string(std::stoi(submitted.out)), next = std::to_string(std::stoi(job) + 1);
  wait_for_steps(directory);
  EXPECT_EQ(cluster().run("scancel --batch --signal=USR1 " + job + "_7").exit_code, 0);
  EXPECT_EQ(state_at_end(job + "_7"), "FAILED");
  EXPECT_EQ(cluster().job_value(job + "_7", "ExitCode"), "75:0")
      << "the run ended before it could be stopped";
  EXPECT_EQ(state_at_end(next + "_7"), "COMPLETED") << read_text(printed);
  for (const std::string& name : {job + "_7", next + "_7"}) {
    const std::map<std::string, std::string> values = {
        {"Account", "mine"}, {"MinMemoryNode", "100M"}, {"TresPerNode", "gres:gpu:h100:2"},
        {"NumNodes", "2"},   {"NumTasks", "2"},         {"CPUs/Task", "1"},
        {"StdOut", printed}, {"TimeLimit", "00:09:00"}};
    for (const auto& [key, value] : values) EXPECT_EQ(cluster().job_value(name, key), value) << name << key;
  }
  EXPECT_EQ(read_result(directory), direct_result("train_gpt", arguments)) << read_text(printed);
  for (const std::string& line :
       {"job " + job + "_7 cannot be requeued (", "), so job " + next + " resumes it\n",
        std::string("\nresuming after step ")})
    EXPECT_NE(read_text(printed).find(line), std::string::npos) << read_text(printed);
}

TEST_F(Slurm, ACancelledTaskStaysCancelled) {
  const std::string directory = cluster() / "run";
  const std::string job =
      submit("--array=0-1 " + batch_files + "mlp.sbatch 1000000 dist.replicas=2 log.dir=" + directory);
  for (const std::string task : {"/0", "/1"}) wait_for_steps(directory + task);
  EXPECT_EQ(cluster().run("scancel " + job + "_1").exit_code, 0);
  EXPECT_EQ(state_at_end(job + "_1"), "CANCELLED");
  EXPECT_EQ(cluster().job_value(job + "_1", "Restarts"), "0");
  EXPECT_EQ(cluster().job_value(job + "_0", "JobState"), "RUNNING");
}

}  // namespace
}  // namespace lockstep
