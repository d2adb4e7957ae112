// SPDX-License-Identifier: Apache-2.0
#include "core/version.h"
#include "plan/language_planner.h"
#include "plan/memory_advice.h"
#include "train/language_model.h"
#include "train/trainer.h"

using namespace lockstep;

int main(int argc, char** argv) {
  return run_program([&] {
    const Arguments arguments = split_arguments(argc, argv);
    if (arguments.help) return print_help(config_help(arguments.program));
    if (arguments.version) return print_once(version_text());
    Config config = load_config(arguments);
    if (arguments.print_config) {
      settle_model(config, World::alone());
      return print_once(to_ini(config));
    }
    const World world = start_world(config);
    const std::unique_ptr<SourceModel> source = settle_model(config, world);
    const LanguageData data = language_data(config, world, source.get());
    const Planner planner = language_planner(config, world, data);
    if (arguments.plan) {
      Config checked = config;  // a plan is of a training that begins
      settle_steps(checked, data.training, data.validation != nullptr);
      return print_once(describe_plan(config, planner));
    }
    const MemoryPlan plan = require_memory(config, planner);
    const std::unique_ptr<Gpt> model = make_gpt(config, data.vocabulary_size);
    TrainingTask task = language_task(config, *model, data, source.get());
    task.planned_bytes = plan.peak;
    return train(config, world, task);
  });
}
