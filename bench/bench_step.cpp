// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <numeric>

#include "core/error.h"
#include "core/trace.h"
#include "measure.h"
#include "nn/gradient_clip.h"
#include "report.h"
#include "train/language_model.h"
#include "train/program.h"

using namespace lockstep;

namespace {

constexpr const char* usage =
    R"(bench_step [--steps N] [--warmup N] [--append] [--config file] [section.key=value ...]

Where the time of a training step on the CPU goes, on random tokens. Start it with mpirun for several ranks.
  --steps    how many are timed, and again as many with a trace of their kernels (default 50)
  --warmup   steps before those (default 5)
  --append   add the rows to bench/results/bench_step.csv
  --config   default shakespeare_cpu.ini

)";

struct Options {
  int steps = 50;
  int warmup = 5;
  bool append = false;
};

/// The benchmark's own arguments, taken out of what the configuration does not know.
Options take_options(Arguments& arguments) {
  Options options;
  CLI::App app;
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup)->check(CLI::NonNegativeNumber);
  app.add_flag("--append", options.append);
  std::vector<std::string> reversed(arguments.other.rbegin(), arguments.other.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& problem) {
    throw UserError(concat(problem.what(), "; see bench_step --help"));
  }
  arguments.other.clear();
  if (arguments.config_file.empty()) arguments.config_file = "shakespeare_cpu.ini";
  const std::vector<Arguments::Override> own = {{"train.device", "cpu"},
                                                {"data.dataset", "random_tokens"},
                                                {"model.vocab_size", "65"},
                                                {"log.dir", "runs/bench_step"}};
  arguments.overrides.insert(arguments.overrides.begin(), own.begin(), own.end());
  return options;
}

enum Phase { data, forward, backward, communication, norm_and_clip, optimizer, phases };
constexpr const char* phase_names[phases] = {"data",          "forward",       "backward",
                                             "communication", "norm_and_clip", "optimizer"};

/// Seconds of one step by phase.
using PhaseSeconds = std::array<double, phases>;

/// Charges the time since its last call to a phase.
class Stopwatch {
 public:
  void charge(double& seconds) {
    const auto now = std::chrono::steady_clock::now();
    seconds += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// The trainer's step with a clock between its phases.
class Training {
 public:
  Training(const Config& config, const World& world, const TrainingTask& task)
      : config_(config),
        task_(task),
        data_parallel_(task.parameters, world,
                       {.replicas = static_cast<int>(config.dist.replicas),
                        .reduction = config.dist.reduction == "tree" ? Reduction::tree : Reduction::native,
                        .bucket_bytes = static_cast<int64_t>(config.dist.bucket_mib * 1048576.0),
                        .overlap = world.has_spare_core(static_cast<int>(config.train.threads))}),
        optimizer_(task.make_optimizer(task.parameters)),
        loader_(task.training_data, {.replicas = config.dist.replicas,
                                     .first_replica = data_parallel_.replicas().begin,
                                     .end_replica = data_parallel_.replicas().end,
                                     .batch_size = config.train.batch_size,
                                     .seed = static_cast<uint64_t>(config.train.seed)}) {}

  PhaseSeconds step() {
    PhaseSeconds seconds{};
    Stopwatch watch;
    const Step step = loader_.next();
    watch.charge(seconds[data]);
    for (const Batch& batch : step.batches) {
      const Context context{.training = true,
                            .seed = static_cast<uint64_t>(config_.train.seed),
                            .step = static_cast<uint32_t>(step.index),
                            .sample = static_cast<uint32_t>(batch.first_sample)};
      const Tensor loss = task_.loss(batch.inputs, batch.targets, context);
      watch.charge(seconds[forward]);
      data_parallel_.backward(loss);
      watch.charge(seconds[backward]);
    }
    data_parallel_.wait();
    watch.charge(seconds[communication]);
    const float factor = clip_factor(gradient_norm(task_.parameters), config_.train.grad_clip);
    watch.charge(seconds[norm_and_clip]);
    optimizer_->step(config_.train.learning_rate, factor);
    watch.charge(seconds[optimizer]);
    return seconds;
  }

  std::vector<PhaseSeconds> steps(int count) {
    std::vector<PhaseSeconds> all;
    for (int i = 0; i < count; ++i) all.push_back(step());
    return all;
  }

 private:
  const Config& config_;
  const TrainingTask& task_;
  DataParallel data_parallel_;
  std::unique_ptr<Optimizer> optimizer_;
  Loader loader_;
};

/// The FMA ceiling of all ranks together, measured at the same time.
double peak_of(const World& world) {
  world.communicator().barrier();
  const double mine = peak_flops(std::get<CpuStream>(current_stream()));
  std::vector<double> of_rank(static_cast<size_t>(world.size()));
  world.communicator().all_gather(&mine, sizeof(mine), of_rank.data());
  return std::accumulate(of_rank.begin(), of_rank.end(), 0.0);
}

std::string workload(const Config& config) {
  return concat(config.model.n_layer, "x", config.model.n_head, "x", config.model.n_embd, " block ",
                config.data.block_size, " replicas ", config.dist.replicas, " batch ",
                config.train.batch_size, config.dist.reduction == "tree" ? "" : " native");
}

double sum(const PhaseSeconds& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

template <class Part>
Timing timing_over(const std::vector<PhaseSeconds>& steps, Part part) {
  std::vector<double> samples;
  for (const PhaseSeconds& step : steps) samples.push_back(part(step));
  return timing_of(std::move(samples));
}

/// One row for the step, one a phase, one a kernel.
class StepReport {
 public:
  StepReport(const Config& config, const World& world)
      : workload_(workload(config)),
        report_("bench_step",
                {{"workload", 41},
                 {"part", 33},
                 {"calls", 8},
                 {"ms"},
                 {"spread", 8},
                 {"percent"},
                 {"tokens_per_s", 14},
                 {"fma_percent", 13}},
                {.ranks = world.size(), .threads = static_cast<int>(config.train.threads)},
                world.is_first()) {}

  void add_phases(const std::vector<PhaseSeconds>& steps, double tokens, double flops, double peak) {
    const Timing step = timing_over(steps, sum);
    add("step", 1, step, step.seconds, fixed(tokens / step.seconds, 0),
        fixed(100.0 * flops / step.seconds / peak, 1));
    for (size_t phase = 0; phase < phases; ++phase)
      add(concat("phase ", phase_names[phase]), 1,
          timing_over(steps, [&](const PhaseSeconds& seconds) { return seconds[phase]; }), step.seconds);
  }

  /// Means, because a trace keeps totals only.
  void add_kernels(const std::map<std::string, Trace::Total>& totals,
                   const std::vector<PhaseSeconds>& steps) {
    const auto count = static_cast<double>(steps.size());
    double whole = 0;
    for (const PhaseSeconds& step : steps) whole += sum(step) / count;
    std::vector<std::pair<std::string, Trace::Total>> sorted(totals.begin(), totals.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
    for (const auto& [name, total] : sorted)
      add("kernel " + name, static_cast<double>(total.calls) / count,
          {.seconds = static_cast<double>(total.nanoseconds) * 1e-9 / count}, whole);
  }

  void append() const { report_.append(); }

 private:
  void add(const std::string& part, double calls, const Timing& timing, double whole,
           const std::string& tokens_per_second = "", const std::string& fma_percent = "") {
    report_.add({workload_, part, fixed(calls, 0), fixed(timing.seconds * 1e3, 3),
                 timing.spread_percent > 0 ? fixed(timing.spread_percent, 1) : "",
                 fixed(100.0 * timing.seconds / whole, 1), tokens_per_second, fma_percent});
  }

  std::string workload_;
  Report report_;
};

int bench(const Config& config, const World& world, const Options& options) {
  const LanguageData tokens = load_language_data(config, world);
  const std::unique_ptr<Gpt> model = make_gpt(config, tokens.vocabulary_size);
  const TrainingTask task = language_task(config, *model, tokens);
  Training training(config, world, task);
  const double peak = peak_of(world);
  const auto tokens_per_step =
      static_cast<double>(config.dist.replicas * config.train.batch_size * task.tokens_per_sample);

  StepReport report(config, world);
  training.steps(options.warmup);
  report.add_phases(training.steps(options.steps), tokens_per_step, tokens_per_step * task.flops_per_token,
                    peak);
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
    if (arguments.help) {
      std::cout << usage << config_help(arguments.program);
      return 0;
    }
    const Options options = take_options(arguments);
    Config config = load_config(arguments);
    require(config.train.accumulate == 1,
            "train.accumulate: bench_step takes each replica's batch whole; set it to 1");
    const World world = start_world(config);
    return bench(config, world, options);
  });
}
