// SPDX-License-Identifier: Apache-2.0
// Exercise 1c, accumulation by hand. One step takes four batches of 32 samples, one after the other. It moves
// the parameters once, by the mean of the four gradients. The bits equal those of four ranks with one batch
// each. They depend on the order of additions, which is (0 + 1) + (2 + 3) here.
// See docs/tutorial/exercises.md, 1c.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32");
  return run_alone([&] {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    Sgd optimizer(parameters, {});
    Loader loader(data,
                  {.replicas = 4, .local_replicas = {0, 1, 2, 3}, .batch_size = options["--batch_size"]});

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      std::vector<float> losses;
      std::vector<Numbers> kept;  // the gradients of the batches so far
      for (const Batch& batch : step.batches) {
        const Tensor loss = mean_squared_error(model(batch.inputs), batch.targets);
        backward(loss);
        // blank<void>("keep this batch's gradient: the next backward() overwrites it")
        kept.push_back(numbers(parameters.gradients()));
        losses.push_back(static_cast<float>(item(loss)));
      }
      // blank<Numbers>("the sum of the four, neighbours first"): add(add(kept[0], kept[1]), add(kept[2], kept[3]))
      const Numbers total = add(add(kept[0], kept[1]), add(kept[2], kept[3]));
      float* gradients = parameters.gradients().data<float>();
      // blank<float>("the mean over the batches"): total[j] / 4
      for (size_t j = 0; j < total.size(); ++j) gradients[j] = total[j] / 4;
      optimizer.step(learning_rate);
      report_step(step.index + 1, tree_mean(losses));
    }
    return 0;
  });
}
