// SPDX-License-Identifier: Apache-2.0
// Trains a small model with the whole training loop in this file. docs/tutorial/README.md explains it.
#include <filesystem>
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
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"
#include "options.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr const char* snapshot_path = "snapshot.safetensors";
constexpr const char* known = "total_epochs=50 save_every=10 --batch_size=32 --ranks=0 --replicas=0";

int main(int argc, char** argv) {
  const Options options(argc, argv, known);
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const std::string device = concat("CPU", world.rank());
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {.replicas = options["--replicas"]});
    Sgd optimizer(parameters, {.momentum = 0.9});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"], .shuffle = true});

    std::vector<NamedTensor> state = model.parameters();
    for (const NamedTensor& velocity : optimizer.state()) state.push_back(velocity);
    int epochs_run = 0;
    const bool has_snapshot = world.is_first() && std::filesystem::exists(snapshot_path);
    const std::string read = has_snapshot ? to_safetensors(load_safetensors(snapshot_path)) : "";
    if (const std::string bytes = world.communicator().broadcast_text(read, 0); !bytes.empty()) {
      const SafeTensors snapshot = from_safetensors(bytes, snapshot_path);
      restore_tensors(snapshot.tensors, state, snapshot_path);
      epochs_run = std::stoi(snapshot.metadata.at("epochs_run"));
      loader.seek(epochs_run * loader.steps_per_epoch());
      if (world.is_first())
        std::cout << concat("Resuming training from snapshot at Epoch ", epochs_run, "\n");
    }

    for (int epoch = epochs_run; epoch < options["total_epochs"]; ++epoch) {
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
      const std::string epochs = concat(epoch + 1);
      write_file(snapshot_path, to_safetensors({.tensors = state, .metadata = {{"epochs_run", epochs}}}));
      std::cout << concat("Epoch ", epoch, " | Training snapshot saved at ", snapshot_path, "\n");
    }
    return 0;
  });
}
