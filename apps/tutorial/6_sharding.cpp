// SPDX-License-Identifier: Apache-2.0
// Trains a wide model that is sharded over ranks, with its own loop. docs/tutorial/6_own_loop.md explains it.
#include <algorithm>
#include <iostream>
#include <memory>
#include <vector>

#include "deep_mlp.h"
#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/memory_limit.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/dry_run.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"
#include "options.h"

using namespace lockstep;

constexpr double learning_rate = 1e-4;
constexpr const char* known =
    "total_epochs=2 --batch_size=8 --ranks=0 --replicas=0 --shard=none|optimizer|gradients|full --plan=0";

/// Gathers the model unit by unit and returns it if `keeps`. All ranks must call it.
SafeTensors gather_model(const ParameterSpace& parameters, DataParallel& ddp, bool keeps) {
  SafeTensors whole;
  for (const Parameter& one : parameters.layout.parameters()) {
    const int unit = parameters.layout.unit_of(one.place);
    const int64_t first = one.place.begin - parameters.layout.units()[static_cast<size_t>(unit)].begin;
    const Tensor values = ddp.values.gather(unit).slice(first, first + one.place.size());
    if (!keeps) continue;
    whole.tensors.push_back({one.name, empty(one.tensor.shape(), DType::f32, cpu_stream())});
    copy(values.reshape(one.tensor.shape()), whole.tensors.back().tensor);
  }
  return whole;
}

int main(int argc, char** argv) {
  const Options options(argc, argv, known);
  const auto train = [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(512, 20);
    const DeepMlp model(/*width=*/512);
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world,
                     {.replicas = options["--replicas"], .shard = static_cast<Shard>(options["--shard"])});
    AdamW optimizer(parameters, {});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"], .shuffle = true});

    for (int epoch = 0; epoch < options["total_epochs"]; ++epoch) {
      std::cout << concat("[CPU", world.rank(), "] Epoch ", epoch, " | Batchsize: ", options["--batch_size"],
                          " | Steps: ", loader.steps_per_epoch(), "\n")
                << std::flush;

      double total_loss = 0.0;
      for (int64_t i = 0; i < loader.steps_per_epoch(); ++i) {
        const Step step = loader.next();
        ddp.begin_step();
        for (const Batch& batch : step.batches) {
          const Context context = {.step = static_cast<uint32_t>(step.index),
                                   .sample = static_cast<uint32_t>(batch.first_sample)};
          ddp.backward(mean_squared_error(model(batch.inputs, /*segments=*/1, context), batch.targets));
        }
        ddp.step(optimizer, learning_rate);
        total_loss += item(ddp.summary.mean_loss());
      }
      if (!world.is_first() || options["--plan"]) continue;
      std::cout << concat("Epoch ", epoch, " | Loss: ", total_loss / loader.steps_per_epoch(), "\n");
    }
    if (options["--plan"]) return 0;
    const double most = process_memory().most_resident;
    std::vector<double> all(static_cast<size_t>(world.size()));
    world.communicator().all_gather(&most, sizeof most, all.data());
    const SafeTensors whole = gather_model(parameters, ddp, world.is_first());
    if (!world.is_first()) return 0;
    std::cout << concat("memory: at most ", bytes_text(std::ranges::max(all)), " a rank\n");
    write_file("checkpoint.safetensors", to_safetensors(whole));
    return 0;
  };
  if (options["--plan"] == 0) return launch_ranks(options["--ranks"], train);
  return run_alone([&] {
    const DryRun dry;
    train(World(std::make_shared<DryCommunicator>(0, options["--plan"], options["--plan"])));
    for (const MemoryUse& use : dry.table())
      std::cout << concat("Plan | ", use.label, ": ", bytes_text(use.peak_bytes), "\n");
    return 0;
  });
}
