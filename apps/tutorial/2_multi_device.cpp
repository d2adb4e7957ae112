// SPDX-License-Identifier: Apache-2.0
// Trains a small model with the whole training loop in this file. docs/tutorial/README.md explains it.
#include <iostream>
#include <memory>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/core/file.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/layers.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"
#include "options.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr const char* known = "total_epochs=50 save_every=10 --batch_size=32 --ranks=0 --replicas=0";

int main(int argc, char** argv) {
  const Options options(argc, argv, known);
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const std::string device = concat("CPU", world.rank());
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {.replicas = options["--replicas"]});
    Sgd optimizer(parameters, {});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"], .shuffle = true});

    for (int epoch = 0; epoch < options["total_epochs"]; ++epoch) {
      std::cout << concat("[", device, "] Epoch ", epoch, " | Batchsize: ", options["--batch_size"],
                          " | Steps: ", loader.steps_per_epoch(), "\n")
                << std::flush;

      double total_loss = 0.0;
      for (int64_t i = 0; i < loader.steps_per_epoch(); ++i) {
        const Step step = loader.next();
        for (const Batch& batch : step.batches) {
          const Tensor loss = mean_squared_error(model(batch.inputs), batch.targets);
          ddp.backward(loss);
        }
        total_loss += ddp.wait();
        optimizer.step(learning_rate);
      }

      if (!world.is_first()) continue;
      std::cout << concat("Epoch ", epoch, " | Loss: ", total_loss / loader.steps_per_epoch(), "\n");
      const bool is_last = epoch + 1 == options["total_epochs"];
      if (epoch % options["save_every"] != 0 && !is_last) continue;
      write_file("checkpoint.safetensors", to_safetensors({.tensors = model.parameters(), .metadata = {}}));
      std::cout << concat("Epoch ", epoch, " | Training checkpoint saved at checkpoint.safetensors\n");
    }
    return 0;
  });
}
