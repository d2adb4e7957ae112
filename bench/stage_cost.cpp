// SPDX-License-Identifier: Apache-2.0
#include "stage_cost.h"

#include <array>

#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "report.h"
#include "timed_training.h"

namespace lockstep {
namespace {

constexpr std::array stages = {Shard::none, Shard::optimizer, Shard::gradients, Shard::full};

struct Case {
  Shard stage = Shard::none;
  bool shares_memory;
  std::string path = {};  ///< the engine's name of the transport
  std::vector<PhaseSeconds> steps = {};
};

/// Times one case in its own training, because memory may hold only one training at a time.
void time_steps(Case& timed, Job job, const World& world, const StageCostOptions& options) {
  job.dist.shard = timed.stage;
  job.dist.group = 0;
  {
    const LanguageData tokens = language_data(job, world, nullptr);
    const std::unique_ptr<LanguageModel> model = make_model(job, tokens.vocabulary_size);
    const LanguageTask task(job, *model, tokens);
    TimedTraining training(job, world, task, timed.shares_memory);
    timed.path = training.data_parallel().setup.transport;
    training.steps(options.warmup);
    for (const PhaseSeconds& step : training.steps(options.steps)) timed.steps.push_back(step);
  }
  release_cached_memory(current_stream());
  world.communicator().barrier();
}

}  // namespace

void compare_stages(const Job& job, const World& world, const StageCostOptions& options) {
  require(world.size() > 1, "--stages: one rank cannot shard; start bench_step with mpirun -np 2");
  require(job.dist.shard == Shard::none && job.dist.reduction == Reduction::tree,
          "--stages tries every dist.shard with dist.reduction = tree: remove both settings");
  std::vector<Case> cases;
  for (const bool shares_memory : {true, false})
    for (const Shard stage : stages) cases.push_back({stage, shares_memory});
  for (int round = 0; round < options.rounds; ++round)
    for (Case& one : cases) time_steps(one, job, world, options);

  Report report("bench_stages",
                {{"workload", 47},
                 {"path", 17},
                 {"stage"},
                 {"ms"},
                 {"spread", 8},
                 {"communication_ms", 17},
                 {"times_plain", 12}},
                {.ranks = world.size(), .threads = static_cast<int>(job.compute.threads)}, world.is_first());
  double plain = 0;
  for (const Case& one : cases) {
    const Timing step = timing_over(one.steps, whole);
    const Timing waited =
        timing_over(one.steps, [](const PhaseSeconds& seconds) { return seconds[communication]; });
    if (one.stage == stages.front()) plain = step.seconds;
    report.add({workload_of(job), one.path, name(one.stage), fixed_text(step.seconds * 1e3, 1),
                fixed_text(step.spread_percent, 1), fixed_text(waited.seconds * 1e3, 1),
                fixed_text(step.seconds / plain, 3)});
  }
  if (options.append) report.append();
}

}  // namespace lockstep
