// SPDX-License-Identifier: Apache-2.0
// Exercise 2b, the sampler by hand. Find the samples of this rank. Each epoch has its own order: a
// permutation drawn from seed + epoch. Rank r of N takes the places r, r + N, r + 2N, ... of this order. All
// ranks take the same number of samples. If the order ends too early, it starts over.
// See docs/tutorial/exercises.md, 2b.
#include "apps/tutorial/exercises/exercise.h"
#include "lockstep/data/sampler.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr uint64_t seed = 0;
constexpr int64_t samples = 2048;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=3");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const SyntheticRegression data(samples, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {});
    Sgd optimizer(parameters, {});

    int64_t step = 0;
    for (int epoch = 0; epoch < options["total_epochs"]; ++epoch) {
      // blank<std::vector<uint32_t>>("the order of this epoch"): random_permutation(samples, seed + static_cast<uint64_t>(epoch))
      const std::vector<uint32_t> order = random_permutation(samples, seed + static_cast<uint64_t>(epoch));
      // blank<int64_t>("how many samples each rank takes, rounded up"): (samples + world.size() - 1) / world.size()
      const int64_t share = (samples + world.size() - 1) / world.size();
      std::vector<int64_t> mine;
      for (int64_t k = 0; k < share; ++k) {
        // blank<int64_t>("the place of this rank's k-th sample in the order"): (world.rank() + k * world.size()) % samples
        const int64_t place = (world.rank() + k * world.size()) % samples;
        mine.push_back(order.at(static_cast<size_t>(place)));
      }
      for (int64_t begin = 0; begin < share; begin += options["--batch_size"]) {
        const int64_t size = std::min<int64_t>(options["--batch_size"], share - begin);
        const Batch batch = collect(data, {mine.data() + begin, static_cast<size_t>(size)}, cpu_stream());
        ddp.backward(mean_squared_error(model(batch.inputs), batch.targets));
        const float loss = ddp.wait();
        optimizer.step(learning_rate);
        if (world.is_first()) report_step(++step, loss);
      }
    }
    return 0;
  });
}
