// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/program/command_line.h"
#include "measure.h"
#include "report.h"

using namespace lockstep;

namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Starts a training of one step and returns the seconds to the end of that step.
double time_start(const std::string& launcher, int ranks) {
  const std::filesystem::path programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string folder = make_temporary_folder("bench_start");
  const double begin = unix_seconds();
  const CommandResult result = run_within(60.0, {programs / "lockrun",
                                                 "--via",
                                                 launcher,
                                                 "--max-restarts",
                                                 "0",
                                                 "--nproc",
                                                 std::to_string(ranks),
                                                 "--",
                                                 programs / "train_gpt",
                                                 "data.dataset=sample",
                                                 "model.n_layer=4",
                                                 "model.n_head=4",
                                                 "model.n_embd=128",
                                                 "data.block_size=64",
                                                 "train.batch_size=6",
                                                 "train.threads=1",
                                                 "train.steps=1",
                                                 "train.warmup_steps=0",
                                                 "train.eval_every=-1",
                                                 "train.sample_every=0",
                                                 "snapshot.path=none",
                                                 "train.device=cpu",
                                                 "log.dir=" + folder});
  std::ifstream metrics(folder + "/metrics.jsonl");
  std::string first;
  std::getline(metrics, first);
  std::filesystem::remove_all(folder);
  expect(result.succeeded() && !first.empty(), "lockrun --via ", launcher, ": ", result.output);
  return nlohmann::json::parse(first).at("time").get<double>() - begin;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Measures the time from the start of lockrun to the end of the first step of a small GPT, with each "
      "launcher of ranks on this host. The launchers alternate.");
  int ranks = 2, repeats = 11;
  bool append = false;
  line.add("--ranks", ranks, "ranks", {.is_positive = true});
  line.add("--repeats", repeats, "starts by each launcher", {.is_positive = true});
  line.add_flag("--append", append, "add the rows to bench/results/bench_start.csv");
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    const std::vector<std::string> launchers = {"pmix", "mpirun"};
    std::vector<std::vector<double>> seconds(launchers.size());
    // The first starts are not counted, because they read the programs from the disk.
    for (int repeat = -1; repeat < repeats; ++repeat)
      for (size_t i = 0; i < launchers.size(); ++i) {
        const double time = time_start(launchers[i], ranks);
        if (repeat >= 0) seconds[i].push_back(time);
      }
    Report report("bench_start", {{"launcher", 12}, {"first_step_ms", 14}, {"spread", 8}},
                  {.ranks = ranks, .threads = 1});
    for (size_t i = 0; i < launchers.size(); ++i) {
      const Timing timing = timing_of(seconds[i]);
      report.add({launchers[i], fixed_text(timing.seconds * 1e3, 0), fixed_text(timing.spread_percent, 1)});
    }
    if (append) report.append();
    return 0;
  });
}
