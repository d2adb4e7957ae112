// SPDX-License-Identifier: Apache-2.0
// Exercise 5c, recomputation by hand. The first half of the model keeps only its result for the backward
// pass. When the backward pass reaches this half, it runs the half again. The second run has to drop the same
// numbers as the first one. Its dropout is therefore a function of a key.
// See docs/tutorial/exercises.md, 5c.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32");
  return run_alone([&] {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp first({20, 64, 64}), second({64, 64, 1});
    std::vector<NamedTensor> list = first.parameters("first.");
    for (const NamedTensor& one : second.parameters("second.")) list.push_back(one);
    ParameterSpace parameters(list);
    Sgd optimizer(parameters, {});
    Loader loader(data, {.batch_size = options["--batch_size"]});

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      const auto first_half = [&] {
        // blank<uint32_t>("a number that is new in every step, but not when the half runs again"): static_cast<uint32_t>(step.index)
        const RandomKey key = {.seed = 0, .step = static_cast<uint32_t>(step.index)};
        return dropout(relu(first(batch.inputs)), 0.2, key);
      };
      Tensor kept;
      {
        // blank<void>("let the first half run, with nothing recorded"), 2 lines
        const NoGrad no_grad;
        kept = first_half();
      }
      kept.set_requires_grad();
      const Tensor loss = mean_squared_error(second(kept), batch.targets);
      backward(loss);
      // blank<void>("run it again, and go through it backward from the gradient that kept has received")
      backward(first_half(), kept.grad());
      optimizer.step(learning_rate);
      report_step(step.index + 1, static_cast<float>(item(loss)));
    }
    report_memory(options["total_epochs"] * loader.steps_per_epoch());
    return 0;
  });
}
