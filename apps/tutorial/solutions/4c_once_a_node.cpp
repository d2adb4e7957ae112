// SPDX-License-Identifier: Apache-2.0
// Exercise 4c, once on every node. Training begins with pretrained weights, which every rank reads from its
// node's disk. One rank per node has to download them, and no rank may read them before they are complete.
// See docs/tutorial/exercises.md, 4c.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=4 --nodes=2");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const Node node = pretend_node(world, options["--nodes"]);
    const std::vector<std::string> names = world.communicator().all_gather_text(node.name);
    const auto local_rank = std::count(names.begin(), names.begin() + world.rank(), node.name);
    // blank<std::string>("the path of weights.safetensors on this node's disk"): node.disk + "weights.safetensors"
    const std::string weights = node.disk + "weights.safetensors";
    // blank<bool>("does this rank download?"): local_rank == 0
    const bool downloads = local_rank == 0;
    if (downloads) download_weights(node, weights);
    // blank<void>("wait until all downloads are over")
    world.communicator().barrier();

    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    restore_tensors(load_safetensors(weights).tensors, model.parameters(), weights);
    if (world.is_first()) report_words(0, files_on_disks(options["--nodes"]));
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {});
    Sgd optimizer(parameters, {});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"]});

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      ddp.backward(mean_squared_error(model(batch.inputs), batch.targets));
      const float loss = ddp.wait();
      optimizer.step(learning_rate);
      if (world.is_first()) report_step(step.index + 1, loss);
    }
    return 0;
  });
}
