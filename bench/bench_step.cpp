// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <numeric>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/kernels/trace.h"
#include "lockstep/program/command_line.h"
#include "lockstep/train/trainer.h"
#include "measure.h"
#include "report.h"
#include "stage_cost.h"
#include "timed_training.h"

using namespace lockstep;

namespace {

constexpr const char* usage =
    R"(bench_step [--steps N] [--warmup N] [--stages ROUNDS] [--append] [--config file] [section.key=value ...]

Measures a training step on the CPU by phase and kernel, on random tokens.
Start it with mpirun for several ranks.
  --steps    steps to time; the same number runs again with a trace of the kernels (default 50)
  --warmup   steps before the timed ones (default 5)
  --stages   number of rounds that compare dist.shard = none, optimizer,
             gradients and full instead, in shared memory and with messages; a
             round runs --warmup and then --steps timed steps of each
  --append   add the rows to bench/results/bench_step.csv, or bench_stages.csv
  --config   default shakespeare_cpu.ini

)";

struct Options {
  int steps = 50;
  int warmup = 5;
  int rounds = 0;  ///< rounds of --stages; 0 if it is not given
  bool append = false;
};

/// Removes the benchmark's own options from the command line and returns them.
Options take_options(Arguments& arguments) {
  Options options;
  CommandLine line;
  line.add("--steps", options.steps, "", {.is_positive = true});
  line.add("--warmup", options.warmup, "", {.least = 0});
  line.add("--stages", options.rounds, "", {.is_positive = true});
  line.add_flag("--append", options.append);
  take_benchmark_arguments(line, arguments);
  return options;
}

/// Measures the FMA ceiling on all ranks at the same time and returns the sum.
double peak_of(const World& world) {
  world.communicator().barrier();
  const double mine = peak_flops(std::get<CpuStream>(current_stream()));
  const std::vector<double> of_rank = world.communicator().all_gather_value(mine);
  return std::accumulate(of_rank.begin(), of_rank.end(), 0.0);
}

/// A report with one row for the step, one per phase and one per kernel.
class StepReport {
 public:
  StepReport(const Job& job, const World& world)
      : workload_(workload_of(job)),
        report_("bench_step",
                {{"workload", 41},
                 {"part", 33},
                 {"calls", 8},
                 {"ms"},
                 {"spread", 8},
                 {"percent"},
                 {"tokens_per_s", 14},
                 {"fma_percent", 13}},
                {.ranks = world.size(), .threads = static_cast<int>(job.compute.threads)}, world.is_first()) {
  }

  void add_phases(const std::vector<PhaseSeconds>& steps, double tokens, double flops, double peak) {
    const Timing step = timing_over(steps, whole);
    add("step", 1, step, step.seconds, fixed_text(tokens / step.seconds, 0),
        fixed_text(100.0 * flops / step.seconds / peak, 1));
    for (size_t phase = 0; phase < phase_names.size(); ++phase)
      add(concat("phase ", phase_names[phase]), 1,
          timing_over(steps, [&](const PhaseSeconds& seconds) { return seconds[phase]; }), step.seconds);
  }

  /// Adds the mean time of each kernel. Medians are not available because a trace stores only totals.
  void add_kernels(const std::map<std::string, Trace::Total>& totals,
                   const std::vector<PhaseSeconds>& steps) {
    const auto count = static_cast<double>(steps.size());
    double of_step = 0;
    for (const PhaseSeconds& step : steps) of_step += whole(step) / count;
    std::vector<std::pair<std::string, Trace::Total>> sorted(totals.begin(), totals.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
    for (const auto& [name, total] : sorted)
      add("kernel " + name, static_cast<double>(total.calls) / count,
          {.seconds = static_cast<double>(total.nanoseconds) * 1e-9 / count}, of_step);
  }

  void append() const { report_.append(); }

 private:
  void add(const std::string& part, double calls, const Timing& timing, double whole,
           const std::string& tokens_per_second = "", const std::string& fma_percent = "") {
    report_.add({workload_, part, fixed_text(calls, 0), fixed_text(timing.seconds * 1e3, 3),
                 timing.spread_percent > 0 ? fixed_text(timing.spread_percent, 1) : "",
                 fixed_text(100.0 * timing.seconds / whole, 1), tokens_per_second, fma_percent});
  }

  std::string workload_;
  Report report_;
};

int bench(const Job& job, const World& world, const Options& options) {
  const LanguageData tokens = language_data(job, world, nullptr);
  const std::unique_ptr<LanguageModel> model = make_model(job, tokens.vocabulary_size);
  const LanguageTask task(job, *model, tokens);
  TimedTraining training(job, world, task);
  const double peak = peak_of(world);
  const auto tokens_per_step =
      static_cast<double>(job.dist.replicas * job.batches.batch_size * task.facts().tokens_per_sample);

  StepReport report(job, world);
  training.steps(options.warmup);
  report.add_phases(training.steps(options.steps), tokens_per_step,
                    tokens_per_step * task.facts().flops_per_token, peak);
  Trace::current().start();
  const std::vector<PhaseSeconds> traced = training.steps(options.steps);
  Trace::current().stop();
  report.add_kernels(Trace::current().totals(), traced);
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
    require(job.batches.accumulate == 1,
            "train.accumulate: bench_step does not split a replica's batch; set it to 1");
    const World world = start_world();
    job = resolve(settings, world);
    if (options.rounds == 0) return bench(job, world, options);
    compare_stages(job, world,
                   {.rounds = options.rounds,
                    .warmup = options.warmup,
                    .steps = options.steps,
                    .append = options.append});
    return 0;
  });
}
