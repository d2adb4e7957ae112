// SPDX-License-Identifier: Apache-2.0
// Exercise 2e, accumulation over ranks. A step is four batches of 32 samples on any number of ranks: one rank
// runs all four, three ranks run two, one and one. Request this, and the bits are the same on 1, 3 and 4
// ranks. See docs/tutorial/exercises.md, 2e.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=3 --replicas=4");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    // blank<int>("how many batches a step has, on all ranks together"): options["--replicas"]
    DataParallel ddp(parameters, world, {.replicas = options["--replicas"]});
    Sgd optimizer(parameters, {});
    Loader loader(data,
                  {.replicas = ddp.total_replicas(),
                   // blank<std::vector<int>>("which of the replicas this rank executes"): ddp.replicas()
                   .local_replicas = ddp.replicas(),
                   .batch_size = options["--batch_size"]});

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      for (const Batch& batch : step.batches) {
        const Tensor loss = mean_squared_error(model(batch.inputs), batch.targets);
        // blank<void>("the gradients of one replica")
        ddp.backward(loss);
      }
      // blank<float>("end the step: average gradients and losses over all replicas"): ddp.wait()
      const float mean_loss = ddp.wait();
      optimizer.step(learning_rate);
      if (world.is_first()) report_step(step.index + 1, mean_loss);
    }
    return 0;
  });
}
