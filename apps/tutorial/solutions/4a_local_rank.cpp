// SPDX-License-Identifier: Apache-2.0
// Exercise 4a, rank and local rank. Every rank knows its rank and the name of its node. Its local rank is its
// number among the ranks of the same node, and would choose its GPU. Compute it. Then decide which of the two
// numbers chooses the rank's samples.
// See docs/tutorial/exercises.md, 4a.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=4 --nodes=2");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const Node node = pretend_node(world, options["--nodes"]);
    // blank<std::vector<std::string>>("the names of all ranks' nodes, in rank order"): world.communicator().all_gather_text(node.name)
    const std::vector<std::string> names = world.communicator().all_gather_text(node.name);
    int local_rank = 0;
    int local_size = 0;
    for (int rank = 0; rank < world.size(); ++rank) {
      const bool is_on_my_node = names[static_cast<size_t>(rank)] == node.name;
      if (is_on_my_node) ++local_size;
      // blank<bool>("does this rank come before me on my node?"): is_on_my_node && rank < world.rank()
      if (is_on_my_node && rank < world.rank()) ++local_rank;
    }
    report_ranks(world, 0, concat("is ", node.name, ":", local_rank, " of ", local_size));

    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {});
    Sgd optimizer(parameters, {});
    // blank<int>("how many ranks share the samples"): world.size()
    Loader loader(data, {.replicas = world.size(),
                         // blank<int>("which of the shares is this rank's"): world.rank()
                         .local_replicas = {world.rank()},
                         .batch_size = options["--batch_size"]});

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
