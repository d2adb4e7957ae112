// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/training_program.h"

#include "lockstep/comm/world.h"
#include "lockstep/core/version.h"
#include "lockstep/job/keys.h"
#include "lockstep/job/resolve.h"

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

}  // namespace

int run_training_program(int argc, const char* const* argv, const TrainingProgram& program) {
  return run_program([&] {
    const std::vector<std::string> of_language_models = {"model", "data"};
    Arguments arguments = split_arguments(argc, argv);
    if (arguments.help)
      return print_help(program.usage + job_help(arguments.program, program.defaults, of_language_models));
    if (arguments.version) return print_once(version_text());
    require(!arguments.plan, "command line: ", arguments.program, " has no --plan");
    const std::vector<std::string> others = take_arguments(arguments, program.arguments);
    const Settings settings = load_settings(arguments, program.defaults);
    for (const Key& key : job_keys().keys())
      require(!settings.is_set(key.name) || !is_in_section(key.name, of_language_models), key.name,
              " has no effect: ", arguments.program, " has a model and data of its own");
    if (arguments.print_config) return print_once(to_ini(job_of(settings)));
    require(others.size() == program.arguments.size(), "command line: ",
            others.size() < program.arguments.size() ? program.arguments[others.size()] : "", " is missing");
    const World world = start_world();
    const Job job = resolve(settings, world);
    return train(job, world, *program.make_task({.job = job, .world = world, .arguments = others}));
  });
}

std::unique_ptr<Optimizer> make_adamw(ParameterSpace& space, const OptimizerOptions& options) {
  return std::make_unique<AdamW>(
      space,
      AdamW::Options{.beta1 = options.beta1, .beta2 = options.beta2, .weight_decay = options.weight_decay});
}

}  // namespace lockstep
