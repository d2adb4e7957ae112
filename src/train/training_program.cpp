// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/training_program.h"

#include "lockstep/comm/world.h"
#include "lockstep/core/version.h"
#include "lockstep/job/load_job.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

/// Moves the arguments that have names out of the others. Options and what is too much stay, to be refused.
std::vector<std::string> take_arguments(Arguments& arguments, const std::vector<std::string>& names) {
  std::vector<std::string> taken, rest;
  for (const std::string& other : arguments.other)
    (other.starts_with("-") || taken.size() == names.size() ? rest : taken).push_back(other);
  arguments.other = rest;
  return taken;
}

SettingLayer defaults_of(const TrainingProgram& program) {
  SettingLayer defaults;
  for (const auto& [key, value] : program.defaults) defaults.push_back({key, value});
  return defaults;
}

std::string help_of(const TrainingProgram& program, const std::string& name,
                    const std::vector<std::string>& without) {
  std::string text = program.about.empty() ? "" : program.about + "\n\n";
  text += "usage: " + name;
  for (const std::string& argument : program.arguments) text += " " + argument;
  return text + own_model_help(defaults_of(program), without);
}

}  // namespace

int run_training_program(int argc, const char* const* argv, const TrainingProgram& program) {
  return run_program([&] {
    expect(static_cast<bool>(program.make_task), "TrainingProgram::make_task is empty");
    const std::vector<std::string> of_language_models = {"model", "data"};
    Arguments arguments = split_arguments(argc, argv);
    if (arguments.help) return print_help(help_of(program, arguments.program, of_language_models));
    if (arguments.version) return print_once(version_text());
    require(!arguments.plan, "command line: ", arguments.program, " has no --plan");
    const std::vector<std::string> others = take_arguments(arguments, program.arguments);
    for (const Setting& setting : arguments.overrides)
      require(!is_in_section(setting.key, of_language_models), setting.key,
              " has no effect: ", arguments.program, " has a model and data of its own");
    const Settings settings = load_settings(arguments, defaults_of(program));
    if (arguments.print_config) return print_once(to_ini(job_of(settings)));
    require(others.size() == program.arguments.size(), "command line: ",
            others.size() < program.arguments.size() ? program.arguments[others.size()] : "", " is missing");
    const World world = start_world();
    const Job job = resolve(settings, world);
    const auto task = program.make_task({.job = job, .world = world, .arguments = others});
    expect(task != nullptr, "TrainingProgram::make_task returned no task");
    task->use_rules(job.optimizer);
    return train(job, world, *task);
  });
}

std::unique_ptr<Optimizer> make_adamw(ParameterSpace& space, const OptimizerOptions& options) {
  return std::make_unique<AdamW>(
      space,
      AdamW::Options{.beta1 = options.beta1, .beta2 = options.beta2, .weight_decay = options.weight_decay});
}

}  // namespace lockstep
