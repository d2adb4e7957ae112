// SPDX-License-Identifier: Apache-2.0
// Exercise 6a, moments in parts. Momentum keeps a velocity for each value. Under DDP every rank keeps all of
// them and computes the same. Here a rank has only the velocities of its part of the values. It moves that
// part and gets the other parts from their ranks. This is the first stage of ZeRO, dist.shard = optimizer.
// See docs/tutorial/exercises.md, 6a.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr float learning_rate = 1e-2f;
constexpr float momentum = 0.9f;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=4");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 256, 1});
    ParameterSpace parameters(model);
    Loader loader(
        data,
        {.replicas = world.size(), .local_replicas = {world.rank()}, .batch_size = options["--batch_size"]});

    float* values = parameters.values().data<float>();  // all values in one flat array
    const auto share = static_cast<size_t>(parameters.layout.elements() / world.size());
    // blank<size_t>("where this rank's part of the values begins"): static_cast<size_t>(world.rank()) * share
    const size_t first = static_cast<size_t>(world.rank()) * share;
    // The velocities belong to values[first] and the following values.
    // blank<size_t>("how many velocities this rank needs"): share
    Numbers velocities(share);
    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      const Tensor loss = mean_squared_error(model(batch.inputs), batch.targets);
      backward(loss);
      const Numbers mean = mean_over_ranks(world, numbers(parameters.gradients()));  // for all values
      Numbers moved(values + first, values + first + share);
      for (size_t j = 0; j < share; ++j) {
        // blank<float>("the gradient of this value"): mean[first + j]
        velocities[j] = momentum * velocities[j] + mean[first + j];
        moved[j] = std::fma(-learning_rate, velocities[j], moved[j]);
      }
      const auto bytes = static_cast<int64_t>(share * sizeof(float));
      // blank<void>("bring what each rank has moved to all ranks")
      world.communicator().all_gather(moved.data(), bytes, values);
      const float mean_loss = mean_over_ranks(world, static_cast<float>(item(loss)));
      if (world.is_first()) report_step(step.index + 1, mean_loss);
    }
    report_ranks(
        world, options["total_epochs"] * loader.steps_per_epoch(),
        concat("keeps ", velocities.size(), " velocities for ", parameters.layout.elements(), " values"));
    return 0;
  });
}
