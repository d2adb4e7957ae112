// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"
#include "lockstep/core/version.h"
#include "lockstep/job/load_job.h"
#include "lockstep/program/command_line.h"
#include "lockstep/train/mlp_task.h"
#include "lockstep/train/trainer.h"

using namespace lockstep;

namespace {

constexpr const char* usage =
    R"(train_mlp [total_epochs] [save_every] [--batch_size N] [section.key=value ...]

Trains Linear(20, 1) with SGD on 2048 random samples, the data set of the PyTorch DDP tutorials.
  total_epochs  passes over the data (default 50)
  save_every    epochs between snapshots (default 10)
  --batch_size  samples of one replica in one step (default 32)

)";

/// Converts the tutorials' own arguments to overrides of the configuration. Returns save_every.
int64_t take_tutorial_arguments(Arguments& arguments) {
  int64_t total_epochs = 0, save_every = 10, batch_size = 0;
  CommandLine line;
  line.add("total_epochs,--total_epochs,--total-epochs", total_epochs, "", {.least = 1});
  line.add("save_every,--save_every,--save-every", save_every, "", {.least = 1});
  line.add("--batch_size,--batch-size", batch_size, "", {.least = 1});
  line.take_from(arguments.other, arguments.program);
  if (total_epochs > 0) arguments.overrides.push_back({"train.epochs", concat(total_epochs)});
  if (batch_size > 0) arguments.overrides.push_back({"train.batch_size", concat(batch_size)});
  return save_every;
}

const SettingLayer defaults = {{"train.epochs", "50"},          {"train.batch_size", "32"},
                               {"train.learning_rate", "1e-2"}, {"train.min_lr", "1e-2"},
                               {"train.weight_decay", "0"},     {"train.grad_clip", "0"},
                               {"log.dir", "runs/train_mlp"}};

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Arguments arguments = split_arguments(argc, argv);
    if (arguments.help) return print_help(usage + job_help(arguments.program, defaults));
    if (arguments.version) return print_once(version_text());
    require(!arguments.plan, "command line: only train_gpt has --plan; this model has 21 parameters");
    const int64_t save_every = take_tutorial_arguments(arguments);
    const Settings settings = load_settings(arguments, defaults);
    Job job = job_of(settings);
    require(job.compute.recompute == Recompute(), "train.recompute = ", settings["train.recompute"],
            ": the model of train_mlp has one layer and nothing to recompute");
    if (arguments.print_config) return print_once(to_ini(job));
    const World world = start_world();
    job = resolve(settings, world);

    const MlpTask task(job, world.size());
    const int64_t samples = task.training_data()->size();
    const int64_t global_batch = job.dist.replicas * job.batches.batch_size;
    if (job.snapshots.every_steps == 0)
      job.snapshots.every_steps = save_every * ((samples + global_batch - 1) / global_batch);
    return train(job, world, task);
  });
}
