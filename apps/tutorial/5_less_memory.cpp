// SPDX-License-Identifier: Apache-2.0
// Trains a deeper model in less memory, with its own loop. docs/tutorial/5_own_loop.md explains it.
#include <iostream>
#include <memory>
#include <string>

#include "deep_mlp.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/dry_run.h"
#include "lockstep/core/file.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/grad_scaler.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"
#include "options.h"

using namespace lockstep;

constexpr double learning_rate = 1e-3;
constexpr const char* known =
    "total_epochs=2 save_every=10 --batch_size=8192 --ranks=1 --replicas=0 --micro_batches=1 --segments=1 "
    "--bf16=0 --fp16=0 --plan=0";

/// Returns the loss of one micro-batch.
Tensor loss_of(const DeepMlp& model, const Step& step, const Batch& batch, const Options& options) {
  const Context context = {.step = static_cast<uint32_t>(step.index),
                           .sample = static_cast<uint32_t>(batch.first_sample)};
  return mean_squared_error(model(batch.inputs, options["--segments"], context), batch.targets);
}

int main(int argc, char** argv) {
  const Options options(argc, argv, known);
  const int parts = options["--micro_batches"];
  const auto train = [&](const World& world) {
    require(options["--batch_size"] % parts == 0, "--micro_batches does not divide --batch_size evenly");
    const std::string device = concat("CPU", world.rank());
    const auto data = std::make_shared<SyntheticRegression>(8192, 20);
    const DeepMlp model;
    ParameterSpace parameters(model);
    GradScaler scaler(parameters);
    DataParallel ddp(parameters, world,
                     {.replicas = options["--replicas"],
                      .accumulate = parts,
                      .scaler = options["--fp16"] ? &scaler : nullptr});
    if (options["--bf16"]) parameters.set_precision(DType::bf16);
    if (options["--fp16"]) parameters.set_precision(DType::f16);
    Sgd optimizer(parameters, {});
    Loader loader =
        ddp.loader(data, {.batch_size = options["--batch_size"], .shuffle = true, .prefetch = false});

    for (int epoch = 0; epoch < options["total_epochs"]; ++epoch) {
      std::cout << concat("[", device, "] Epoch ", epoch, " | Batchsize: ", options["--batch_size"],
                          " | Steps: ", loader.steps_per_epoch(), "\n")
                << std::flush;

      const auto begin = Clock::now();
      double total_loss = 0.0;
      for (int64_t i = 0; i < loader.steps_per_epoch(); ++i) {
        const Step step = loader.next();
        for (const Batch& batch : step.batches) {
          const MemoryScope scope("activations");
          ddp.backward(loss_of(model, step, batch, options));
        }
        ddp.step(optimizer, learning_rate);
        total_loss += item(ddp.summary.mean_loss());
      }

      if (!world.is_first() || options["--plan"]) continue;
      std::cout << concat("Epoch ", epoch, " | Loss: ", total_loss / loader.steps_per_epoch(),
                          " | Step: ", seconds_since(begin) / loader.steps_per_epoch(), " s\n");
      const bool is_last = epoch + 1 == options["total_epochs"];
      if (epoch % options["save_every"] != 0 && !is_last) continue;
      write_file("checkpoint.safetensors", to_safetensors({.tensors = model.parameters(), .metadata = {}}));
      std::cout << concat("Epoch ", epoch, " | Training checkpoint saved at checkpoint.safetensors\n");
    }
  };
  return launch_ranks(options["--plan"] ? 1 : options["--ranks"], [&](const World& world) {
    const auto dry = options["--plan"] ? std::make_unique<DryRun>() : nullptr;
    train(world);
    if (!world.is_first()) return 0;
    for (const MemoryUse& use : dry ? dry->table() : memory_table())
      std::cout << concat(dry ? "Plan" : "Memory", " | ", use.label, ": ", bytes_text(use.peak_bytes), "\n");
    return 0;
  });
}
