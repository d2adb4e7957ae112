// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/version.h"
#include "lockstep/job/load_job.h"
#include "lockstep/plan/memory_advice.h"
#include "lockstep/train/language_task.h"
#include "lockstep/train/trainer.h"

using namespace lockstep;

int main(int argc, char** argv) {
  return run_program([&] {
    const Arguments arguments = split_arguments(argc, argv);
    if (arguments.help) return print_help(job_help(arguments.program));
    if (arguments.version) return print_once(version_text());
    const Settings settings = load_settings(arguments);
    if (arguments.print_config) {
      const Job job = job_of(settings);
      const World alone = World::alone();
      return print_once(to_ini(with_sizes_of(open_source(job, alone).get(), job, settings)));
    }
    const World world = start_world();
    const Job resolved = resolve(settings, world);
    const std::unique_ptr<SourceModel> source = open_source(resolved, world);
    const Job job = with_sizes_of(source.get(), resolved, settings);
    const LanguageData data = language_data(job, world, source.get());
    const Planner planner = language_planner(job, world, data);
    if (arguments.plan) {
      with_length(job, data.training, data.validation != nullptr);  // a plan is of a training that begins
      return print_once(describe_plan(job, planner));
    }
    const MemoryPlan plan = require_memory(job, planner);
    const std::unique_ptr<LanguageModel> model = make_model(job, data.vocabulary_size);
    return train(job, world, LanguageTask(job, *model, data, source.get()), plan.peak);
  });
}
