// SPDX-License-Identifier: Apache-2.0
// Exercise 2c, averaging by hand. DataParallel is removed, and every rank has the gradient of its own batch.
// Gather the gradients of all ranks, average them, and store the mean where the optimizer reads it.
// tree_sum() adds in the same order on every rank, so all ranks take a bit-identical step.
// See docs/tutorial/exercises.md, 2c.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=4");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    Sgd optimizer(parameters, {});
    Loader loader(
        data,
        {.replicas = world.size(), .local_replicas = {world.rank()}, .batch_size = options["--batch_size"]});

    float* mine = parameters.gradients().data<float>();
    const auto count = static_cast<size_t>(parameters.gradients().size());
    const auto bytes = static_cast<int64_t>(count * sizeof(float));
    // blank<size_t>("how many numbers the gradients of all ranks are"): count * static_cast<size_t>(world.size())
    Numbers all(count * static_cast<size_t>(world.size()));
    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      const Tensor loss = mean_squared_error(model(batch.inputs), batch.targets);
      backward(loss);  // leaves `count` numbers in `mine`
      // blank<void>("gather the gradients of all ranks into all")
      world.communicator().all_gather(mine, bytes, all.data());
      const std::vector<Numbers> of_ranks = cut(all, world.size());
      // blank<Numbers>("the sum over the ranks"): tree_sum(of_ranks)
      const Numbers total = tree_sum(of_ranks);
      // blank<float>("the mean over the ranks"): total[j] / static_cast<float>(world.size())
      for (size_t j = 0; j < count; ++j) mine[j] = total[j] / static_cast<float>(world.size());
      optimizer.step(learning_rate);
      const float mean_loss = mean_over_ranks(world, static_cast<float>(item(loss)));
      if (world.is_first()) report_step(step.index + 1, mean_loss);
    }
    return 0;
  });
}
