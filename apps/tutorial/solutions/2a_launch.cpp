// SPDX-License-Identifier: Apache-2.0
// Exercise 2a, the launch. `train` is the program of one rank. Start the ranks, give each rank its share of
// the samples, and let one rank report for all. DataParallel averages the gradients.
// See docs/tutorial/exercises.md, 2a.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=4");
  const auto train = [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {});
    Sgd optimizer(parameters, {});
    // blank<int>("how many ranks share the samples"): world.size()
    const int sharers = world.size();
    // blank<int>("which of the shares is this rank's, from 0"): world.rank()
    const int mine = world.rank();
    Loader loader(data,
                  {.replicas = sharers, .local_replicas = {mine}, .batch_size = options["--batch_size"]});

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      ddp.backward(mean_squared_error(model(batch.inputs), batch.targets));
      const float loss = ddp.wait();
      optimizer.step(learning_rate);
      // blank<bool>("is this the rank that reports?"): world.is_first()
      const bool reports = world.is_first();
      if (reports) report_step(step.index + 1, loss);
    }
    return 0;
  };
  // blank<int>("start --ranks ranks that run train"): launch_ranks(options["--ranks"], train)
  return run_program([&] { return launch_ranks(options["--ranks"], train); });
}
