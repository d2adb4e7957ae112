// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/program/command_line.h"
#include "lockstep/snapshot/snapshot_writer.h"
#include "lockstep/train/trainer.h"
#include "measure.h"
#include "report.h"
#include "timed_training.h"

using namespace lockstep;

namespace {

constexpr const char* usage =
    R"(bench_snapshot [--seconds S] [--repeats N] [--append] [--config file] [section.key=value ...]

Measures the cost of a snapshot in a training run on the CPU, on random tokens.
Three kinds of stretches of steps alternate: without a snapshot, with one
written in the background, and with one that the steps wait for. Start it with
mpirun for several ranks.
  --seconds  length of a stretch (default 1); must be longer than writing a snapshot takes
  --repeats  stretches of each kind (default 31)
  --append   add the row to bench/results/bench_snapshot.csv
  --config   default shakespeare_cpu.ini

Snapshots are written to snapshot.path (default runs/bench_snapshot/snapshots).

)";

struct Options {
  double seconds = 1.0;
  int repeats = 31;
  bool append = false;
};

/// Removes the benchmark's own options from the command line and returns them.
Options take_options(Arguments& arguments) {
  Options options;
  CommandLine line;
  line.add("--seconds", options.seconds, "", {.is_positive = true});
  line.add("--repeats", options.repeats, "", {.is_positive = true});
  line.add_flag("--append", options.append);
  take_benchmark_arguments(line, arguments);
  return options;
}

enum Kind { without, background, waited, kinds };

/// Seconds of one stretch of steps.
struct Stretch {
  double whole = 0;
  double held_up = 0;  ///< from the start until save() let the steps run
  double written = 0;  ///< from the start until the snapshot was written
};

class SnapshotCost {
 public:
  SnapshotCost(const Job& job, const World& world, const TrainingTask& task)
      : job_(job),
        training_(job, world, task),
        tensors_(training_.optimizer().space(), &training_.optimizer(), world.size()),
        writer_(world, tensors_,
                {.path = job.snapshot_place(),
                 .keep = job.snapshots.keep,
                 .is_shared = is_shared_by_all(world, job.snapshot_place())}) {}

  std::vector<PhaseSeconds> warm_up(int steps) { return training_.steps(steps); }

  Stretch run(Kind kind, int steps) {
    Stretch stretch;
    const auto begin = Clock::now();
    if (kind != without) {
      save();
      if (kind == waited) writer_.finish();
      stretch.held_up = seconds_since(begin);
    }
    for (int step = 0; step < steps; ++step) {
      training_.steps(1);
      writer_.go_on();
    }
    stretch.whole = seconds_since(begin);
    if (kind != without) {
      writer_.finish();
      const auto of_file = std::filesystem::last_write_time(newest_file()).time_since_epoch();
      const auto now = std::filesystem::file_time_type::clock::now().time_since_epoch();
      stretch.written = seconds_since(begin) - std::chrono::duration<double>(now - of_file).count();
    }
    return stretch;
  }

  int64_t bytes() const {
    int64_t total = 0;
    for (const auto& file : std::filesystem::directory_iterator(newest_file().parent_path()))
      total += static_cast<int64_t>(file.file_size());
    return total;
  }

 private:
  void save() {
    Snapshot snapshot;
    snapshot.step = ++saved_;
    snapshot.configuration = to_ini(job_);
    writer_.save(snapshot, {.step = true}, job_.dist.timeout_s);
  }

  /// Returns the path of the snapshot's state.json. The writer writes that file last.
  std::filesystem::path newest_file() const {
    const std::string digits = std::to_string(saved_);
    return std::filesystem::path(job_.snapshot_place()) /
           ("step-" + std::string(8 - digits.size(), '0') + digits) / "state.json";
  }

  const Job& job_;
  TimedTraining training_;
  SpaceTensors tensors_;
  SnapshotWriter writer_;
  int64_t saved_ = 0;
};

int bench(const Job& job, const World& world, const Options& options) {
  const LanguageData tokens = language_data(job, world, nullptr);
  const std::unique_ptr<LanguageModel> model = make_model(job, tokens.vocabulary_size);
  const LanguageTask task(job, *model, tokens);
  SnapshotCost cost(job, world, task);
  double step_seconds = 0;
  for (const PhaseSeconds& step : cost.warm_up(20)) step_seconds += whole(step) / 20;
  // All ranks use rank 0's number of steps.
  const int steps = std::stoi(world.communicator().broadcast_text(
      std::to_string(std::max(1, static_cast<int>(options.seconds / step_seconds))), 0));
  cost.run(background, steps);
  std::vector<Stretch> stretches[kinds];
  for (int repeat = 0; repeat < options.repeats; ++repeat)
    for (int kind = 0; kind < kinds; ++kind)
      stretches[kind].push_back(cost.run(static_cast<Kind>(kind), steps));
  if (!world.is_first()) return 0;

  const auto length = [](const Stretch& stretch) { return stretch.whole; };
  const Timing plain = timing_over(stretches[without], length);
  const auto extra = [&](Kind kind) { return timing_over(stretches[kind], length).seconds - plain.seconds; };
  const auto held_up = timing_over(stretches[background], [](const Stretch& s) { return s.held_up; });
  const auto written = timing_over(stretches[background], [](const Stretch& s) { return s.written; });
  Report report("bench_snapshot",
                {{"workload", 41},
                 {"mib", 8},
                 {"step_ms"},
                 {"spread", 8},
                 {"copy_ms"},
                 {"write_ms"},
                 {"cost_ms"},
                 {"waited_cost_ms", 15},
                 {"percent_at_one_a_minute", 24}},
                {.ranks = world.size(), .threads = static_cast<int>(job.compute.threads)});
  report.add({workload_of(job), fixed_text(static_cast<double>(cost.bytes()) / 1048576.0, 1),
              fixed_text(plain.seconds / steps * 1e3, 3), fixed_text(plain.spread_percent, 1),
              fixed_text(held_up.seconds * 1e3, 2), fixed_text(written.seconds * 1e3, 1),
              fixed_text(extra(background) * 1e3, 1), fixed_text(extra(waited) * 1e3, 1),
              fixed_text(extra(background) / 60.0 * 100.0, 3)});
  if (options.append) report.append();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Arguments arguments = split_arguments(argc, argv);
    if (arguments.help) return print_help(usage + job_help(arguments.program));
    if (arguments.version) return print_once(version_text());
    const Options options = take_options(arguments);
    const Settings settings = load_settings(arguments);
    Job job = job_of(settings);
    require(job.batches.accumulate == 1, "train.accumulate: set it to 1 for bench_snapshot");
    const World world = start_world();
    job = resolve(settings, world);
    return bench(job, world, options);
  });
}
