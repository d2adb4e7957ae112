// SPDX-License-Identifier: Apache-2.0
#include "config/command_line.h"
#include "core/error.h"
#include "core/version.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "parameters/sgd.h"
#include "tensor/ops.h"
#include "train/trainer.h"

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
  line.take_from(arguments);
  if (total_epochs > 0) arguments.overrides.push_back({"train.epochs", concat(total_epochs)});
  if (batch_size > 0) arguments.overrides.push_back({"train.batch_size", concat(batch_size)});
  return save_every;
}

Config defaults() {
  Config config;
  config.train.epochs = 50;
  config.train.batch_size = 32;
  config.train.learning_rate = 1e-2;
  config.train.min_lr = 1e-2;
  config.train.weight_decay = 0.0;
  config.train.grad_clip = 0.0;
  config.log.dir = "runs/train_mlp";
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Arguments arguments = split_arguments(argc, argv);
    if (arguments.help) return print_help(usage + config_help(arguments.program, defaults()));
    if (arguments.version) return print_once(version_text());
    require(!arguments.plan, "command line: only train_gpt has --plan; this model has 21 parameters");
    const int64_t save_every = take_tutorial_arguments(arguments);
    Config config = load_config(arguments, defaults());
    require(config.train.recompute == "none", "train.recompute = ", config.train.recompute,
            ": the model of train_mlp has one layer and nothing to recompute");
    if (arguments.print_config) return print_once(to_ini(config));
    const World world = start_world(config);

    const auto data =
        std::make_shared<SyntheticRegression>(2048, 20, static_cast<uint64_t>(config.train.seed));
    const Mlp model({20, 1});
    initialize_linears(model.parameters(), static_cast<uint64_t>(config.train.seed));
    const int64_t global_batch = config.dist.replicas * config.train.batch_size;
    if (config.snapshot.every_steps == 0)
      config.snapshot.every_steps = save_every * ((data->size() + global_batch - 1) / global_batch);

    TrainingTask task;
    task.parameters = model.parameters();
    task.description = concat("data: ", data->size(), " random samples of 20 numbers\nmodel: Linear(20, 1), ",
                              count_parameters(task.parameters), " parameters");
    task.training_data = data;
    task.flops_per_token = 6.0 * 20;
    task.loss = [&](const Tensor& inputs, const Tensor& targets, const Context&) {
      return mean_squared_error(model(inputs), targets);
    };
    task.make_optimizer = [&](ParameterSpace& space) {
      return std::make_unique<Sgd>(space, Sgd::Options{.weight_decay = config.train.weight_decay});
    };
    task.epoch_text = [&](int64_t first, int64_t last, int64_t batch_size, int64_t steps) {
      const std::string device = config.train.device == "cuda" ? "[GPU" : "[CPU";
      const std::string where = concat(" | Batchsize: ", batch_size, " | Steps: ", steps, "\n");
      const std::string others = world.size() > 1 ? concat("-", world.size() - 1) : "";
      if (first < last) return concat(device, 0, others, "] Epochs ", first, "-", last, where);
      std::string lines;
      for (int rank = 0; rank < world.size(); ++rank) lines += concat(device, rank, "] Epoch ", first, where);
      return lines;
    };
    return train(config, world, task);
  });
}
