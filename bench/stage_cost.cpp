// SPDX-License-Identifier: Apache-2.0
#include "stage_cost.h"

#include <array>
#include <string_view>

#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "report.h"
#include "timed_training.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> stages = {"none", "optimizer", "gradients", "full"};

struct Case {
  std::string_view stage;
  bool shares_memory;
  std::string path = {};  ///< the engine's name of the transport
  std::vector<PhaseSeconds> steps = {};
};

/// Times one case in its own training, because memory may hold only one training at a time.
void time_steps(Case& timed, Config config, const World& world, const StageCostOptions& options) {
  config.dist.shard = timed.stage;
  config.dist.group = 0;
  {
    const LanguageData tokens = load_language_data(config, world);
    const std::unique_ptr<Gpt> model = make_gpt(config, tokens.vocabulary_size);
    const TrainingTask task = language_task(config, *model, tokens);
    TimedTraining training(config, world, task, timed.shares_memory);
    timed.path = training.data_parallel().setup.transport;
    training.steps(options.warmup);
    for (const PhaseSeconds& step : training.steps(options.steps)) timed.steps.push_back(step);
  }
  release_cached_memory(current_stream());
  world.communicator().barrier();
}

}  // namespace

void compare_stages(const Config& config, const World& world, const StageCostOptions& options) {
  require(world.size() > 1, "--stages: one rank cannot shard; start bench_step with mpirun -np 2");
  require(config.dist.shard == "none" && config.dist.reduction == "tree",
          "--stages tries every dist.shard with dist.reduction = tree: remove both settings");
  std::vector<Case> cases;
  for (const bool shares_memory : {true, false})
    for (const std::string_view stage : stages) cases.push_back({stage, shares_memory});
  for (int round = 0; round < options.rounds; ++round)
    for (Case& one : cases) time_steps(one, config, world, options);

  Report report("bench_stages",
                {{"workload", 47},
                 {"path", 17},
                 {"stage"},
                 {"ms"},
                 {"spread", 8},
                 {"communication_ms", 17},
                 {"times_plain", 12}},
                {.ranks = world.size(), .threads = static_cast<int>(config.train.threads)}, world.is_first());
  double plain = 0;
  for (const Case& one : cases) {
    const Timing step = timing_over(one.steps, whole);
    const Timing waited =
        timing_over(one.steps, [](const PhaseSeconds& seconds) { return seconds[communication]; });
    if (one.stage == stages.front()) plain = step.seconds;
    report.add({workload_of(config), one.path, std::string(one.stage), fixed_text(step.seconds * 1e3, 1),
                fixed_text(step.spread_percent, 1), fixed_text(waited.seconds * 1e3, 1),
                fixed_text(step.seconds / plain, 3)});
  }
  if (options.append) report.append();
}

}  // namespace lockstep
