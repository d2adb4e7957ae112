// SPDX-License-Identifier: Apache-2.0
// Whole programs that end and are started a second time.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "lockstep/snapshot/snapshot_store.h"
#include "tests/support/program.h"
#include "tests/support/run_result.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  }

  std::string train(const std::string& run, const std::string& more) const {
    return program("train_gpt") +
           " data.dataset=sample train.threads=1 train.eval_every=-1 log.dir=" + (directory_ / run) + " " +
           more;
  }

  TemporaryDirectory directory_;
};

TEST_F(Resume, ARunThatNobodyGaveReplicasGoesOnWithFewerRanksUnderLockrun) {
  // The run has enough steps to be killed before its end.
  const std::string settings =
      "data.block_size=16 model.n_layer=1 model.n_head=2 model.n_embd=16 train.batch_size=1 "
      "snapshot.every_steps=20 train.steps=1600";
  const Outcome undisturbed = run_command(mpirun(4) + train("undisturbed", settings));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.errors;
  const std::string run = directory_ / "two", metrics = run + "/metrics.jsonl";
  run_command(mpirun(4) + train("two", settings) + " & job=$!; while kill -0 $job && [ $(cat " + metrics +
              " | wc -l) -lt 60 ]; do sleep 0.01; done; pkill -KILL -f log.dir=" + run + "; wait $job");
  ASSERT_TRUE(read_result(run).parameters_hash.empty()) << "the run ended before it was killed";
  fs::copy(run, directory_ / "three", fs::copy_options::recursive);
  for (const auto& [ranks, name] : {std::pair(2, "two"), std::pair(3, "three")}) {
    const Outcome resumed = run_command(lockrun(ranks) + train(name, settings));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
    EXPECT_NE(resumed.errors.find("dist.replicas = 4"), std::string::npos) << resumed.errors;
    EXPECT_NE(resumed.errors.find("resuming after step"), std::string::npos) << resumed.errors;
    EXPECT_EQ(read_bits(directory_ / name), read_bits(directory_ / "undisturbed")) << ranks << " ranks";
  }
}

/// The progress of the snapshot that is being written when a run is killed.
enum class Moment { begun, partly_written, ended, placed, before_is_removed };

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code ignored;  // a folder may be removed while it is read
  for (fs::directory_iterator entry(folder, ignored); entry != fs::directory_iterator();
       entry.increment(ignored))
    entries.push_back(entry->path());
  return entries;
}

/// Returns the step in the name of the newest complete snapshot, or 0 if there is none.
int64_t newest_step(const fs::path& folder) {
  int64_t newest = 0;
  for (const fs::path& entry : entries_of(folder))
    if (const std::string name = entry.filename(); name.starts_with("step-") && entry.extension().empty())
      newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
  return newest;
}

bool has_come(Moment moment, const fs::path& folder, int64_t newest_before) {
  if (moment == Moment::placed) return newest_step(folder) > newest_before;
  for (const fs::path& entry : entries_of(folder)) {
    if (entry.extension() != ".tmp") continue;
    const bool is_written = entry.stem().has_extension();  // a writer adds an extension; removal does not
    if (is_written != (moment != Moment::before_is_removed)) continue;
    if (moment == Moment::begun || !is_written) return true;
    for (const fs::path& file : entries_of(entry)) {
      struct stat facts {};
      const bool is_state = file.filename().string().starts_with("state.json");
      const bool has_bytes = ::stat(file.c_str(), &facts) == 0 && facts.st_blocks > 0;
      if (moment == Moment::ended ? is_state : has_bytes && !is_state) return true;
    }
  }
  return false;
}

/// Returns whether a process has ended, even if its parent has not waited for it.
bool is_dead(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return !(file >> number >> name >> state) || state == "Z";
}

/// A command and the processes that it starts. All of them end at once.
class Killable {
 public:
  static constexpr int everyone = -1;

  /// Starts the command. All its processes have `mark` in their arguments.
  Killable(const std::string& command, const std::string& mark, const std::string& errors) : mark_(mark) {
    child_ = ::fork();
    if (child_ > 0) return;
    ::execl("/bin/bash", "bash", "-c", (command + " >" + errors + " 2>&1 </dev/null").c_str(), nullptr);
    ::_exit(127);
  }
  ~Killable() {
    if (!is_over()) kill();
  }
  Killable(const Killable&) = delete;
  Killable& operator=(const Killable&) = delete;

  bool is_over() {
    if (child_ > 0 && ::waitpid(child_, nullptr, WNOHANG) != 0) child_ = -1;
    return child_ < 0;
  }
  /// Finds the processes in advance, so that kill() takes no time.
  void find_processes() {
    processes_.clear();
    for (const fs::path& entry : entries_of("/proc")) {
      if (read_text(entry / "cmdline").find(mark_) == std::string::npos) continue;
      const std::string environment = '\0' + read_text(entry / "environ"), key("\0OMPI_COMM_WORLD_RANK=", 22);
      const size_t found = environment.find(key);
      processes_.push_back(
          {std::stoi(entry.filename()),
           found == std::string::npos ? nobody : std::stoi(environment.substr(found + key.size()))});
    }
  }
  /// Kills the processes of one rank, after which the others end by themselves. By default it kills all.
  void kill(int rank = everyone) {
    if (processes_.empty()) find_processes();
    for (const Process& process : processes_)
      if (rank == everyone || process.rank == rank) ::kill(process.id, SIGKILL);
    ::waitpid(std::exchange(child_, -1), nullptr, 0);
    // A killed rank may still be inside a system call.
    for (const Process& process : processes_)
      for (int tries = 0; tries < 10000 && !is_dead(process.id); ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  size_t processes() const { return processes_.size(); }

 private:
  static constexpr int nobody = -2;  ///< the rank of a process that is not a rank
  struct Process {
    pid_t id;
    int rank;
  };

  std::string mark_;
  pid_t child_ = -1;
  std::vector<Process> processes_;
};

TEST_F(Resume, RunsThatAreKilledWhileTheyWriteGoOnAtAnyOtherStage) {
  const std::string settings =
      "data.block_size=16 model.n_layer=2 model.n_head=2 model.n_embd=48 model.dropout=0.1 dist.replicas=4 "
      "train.batch_size=2 train.accumulate=2 train.steps=150 ";
  const Outcome undisturbed = run_command(train("undisturbed", settings + "snapshot.path=none"));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.errors;
  const std::string run = directory_ / "run", snapshots = run + "/snapshots", errors = directory_ / "errors";
  const std::string often = settings + "snapshot.every_steps=1 snapshot.keep=2 ";
  const SnapshotStore store(snapshots, 2);
  struct Life {
    const char* stage;
    int ranks;
    Moment end;
    int victim = Killable::everyone;
  };
  const std::vector<Life> lives = {{"dist.shard=full", 4, Moment::begun},
                                   {"dist.shard=gradients", 3, Moment::partly_written, 2},
                                   {"dist.shard=full dist.group=2", 4, Moment::ended},
                                   {"dist.shard=optimizer", 2, Moment::placed},
                                   {"dist.shard=full", 3, Moment::partly_written},
                                   {"dist.shard=none", 3, Moment::partly_written, 0},
                                   {"dist.shard=full", 2, Moment::before_is_removed}};
  int64_t newest = 0;
  int unfinished = 0;
  for (const Life& life : lives) {
    const std::string name = life.stage + std::string(" on ") + std::to_string(life.ranks) + " ranks";
    // Otherwise Open MPI's own memory would stay in /dev/shm.
    const std::string place = "OMPI_MCA_btl_vader_backing_directory=" + directory_.path() + " ";
    Killable training(place + mpirun(life.ranks) + train("run", often + life.stage), "log.dir=" + run,
                      errors);
    const auto wait_until = [&](const std::function<bool()>& condition) {
      while (!condition()) {
        if (training.is_over()) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      return true;
    };
    // The run has resumed and has written some snapshots.
    ASSERT_TRUE(wait_until([&] { return newest_step(snapshots) >= newest + 3; }))
        << name << ": " << read_text(errors);
    training.find_processes();
    ASSERT_GT(training.processes(), static_cast<size_t>(life.ranks)) << "ranks and mpirun";
    const int64_t last = newest_step(snapshots);
    ASSERT_TRUE(wait_until([&] { return has_come(life.end, snapshots, last); }))
        << name << " ended before it was killed: " << read_text(errors);
    training.kill(life.victim);

    const std::string said = read_text(errors);
    EXPECT_EQ(said.find("resuming after step " + std::to_string(newest) + " ") != std::string::npos,
              newest > 0)
        << name << ": " << said;
    ASSERT_TRUE(read_result(run).parameters_hash.empty()) << name << " ended before it was killed";
    const std::vector<fs::path> left = entries_of(snapshots);
    unfinished += static_cast<int>(std::ranges::count(left, ".tmp", &fs::path::extension));
    const auto found =
        store.newest([&](const std::string& report) { ADD_FAILURE() << name << ": " << report; });
    ASSERT_TRUE(found.has_value()) << name;
    EXPECT_GE(found->state().step, last) << name << ": what was whole is";
    newest = found->state().step;
  }
  EXPECT_GT(unfinished, 0) << "no snapshot was being written when its run was killed";
  const Outcome resumed =
      run_command(mpirun(3) + train("run", often + "snapshot.every_steps=50 dist.shard=full"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_EQ(read_bits(run), read_bits(directory_ / "undisturbed"));
  for (const fs::path& entry : entries_of(snapshots))
    EXPECT_NE(entry.extension(), ".tmp") << "files of a killed run are still there";
}

TEST_F(Resume, ATrainingThatDivergesIsSaidOnceAndNotStartedAgain) {
  const Outcome outcome =
      run_command(lockrun(2) + train("run",
                                     "model.n_layer=1 model.n_embd=16 train.steps=50 "
                                     "train.learning_rate=1e30 train.grad_clip=0 dist.replicas=2"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
  const std::string words = "\n[rank 0] error: step 2: the loss is ";
  const size_t said = outcome.errors.find(words);
  ASSERT_NE(said, std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find(words, said + 1), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("lower train.learning_rate"), std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find("(src/"), std::string::npos)
      << "the message names a source file: " << outcome.errors;
  EXPECT_EQ(outcome.errors.find("resuming"), std::string::npos) << outcome.errors;
}

/// Returns the most memory, in MiB, that any process of a command has used.
double most_memory(const std::string& command) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/bash", "bash", "-c", (command + " 2>/dev/null").c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  rusage use{};
  EXPECT_EQ(::wait4(child, &status, 0, &use), child);
  EXPECT_EQ(status, 0) << command;
  return static_cast<double>(use.ru_maxrss) / 1024.0;
}

TEST_F(Resume, TakesNoMoreMemoryThanABeginning) {
  // The model has 20 million parameters. Almost all are in a table, of which a step reads and computes
  // little.
  const std::string settings =
      "data.block_size=8 model.n_layer=1 model.n_head=2 model.n_embd=128 model.vocab_size=160000 "
      "train.batch_size=1 dist.replicas=2";
  const std::string shorter = train("run", settings + " train.steps=2");
  const std::string longer = train("run", settings + " train.steps=3");
  const double fresh = most_memory(mpirun(2) + shorter);
  const double resumed = most_memory(mpirun(2) + longer);
  EXPECT_EQ(read_result(directory_ / "run").losses.size(), 3u);
  EXPECT_GT(fresh, 4 * 80.0) << "values, gradients and moments";
  EXPECT_LE(resumed, 1.1 * fresh);
}

}  // namespace
}  // namespace lockstep
