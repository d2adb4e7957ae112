// SPDX-License-Identifier: Apache-2.0
// Exercise 5a, micro-batches. A step takes 256 samples, but their activations do not fit into memory. So it
// takes eight micro-batches of 32, one after the other. Their gradients are added up in place. The parameters
// move once. The bits equal those of DataParallel with .accumulate = 8.
// See docs/tutorial/exercises.md, 5a.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=256 --parts=8");
  return run_alone([&] {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 64, 64, 1});
    ParameterSpace parameters(model);
    Sgd optimizer(parameters, {});
    Loader loader(data, {.batch_size = options["--batch_size"]});
    const Tensor gradients = parameters.gradients();
    const int parts = options["--parts"];

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      const int64_t samples = batch.samples / parts;
      float total = 0.0f;
      for (int part = 0; part < parts; ++part) {
        // blank<int64_t>("the first sample of this part"): part * samples
        const int64_t first = part * samples;
        const Tensor inputs = batch.inputs.slice(first, first + samples);
        const Tensor targets = batch.targets.slice(first, first + samples);
        const Tensor loss = mean_squared_error(model(inputs), targets);
        // blank<bool>("is there something of this step to which the gradients are added?"): part > 0
        const bool adds = part > 0;
        parameters.gradients.bind(gradients, adds);
        // blank<void>("add what this part's loss counts in the mean of all parts")
        backward(loss, 1.0 / parts);
        total += static_cast<float>(item(loss));
      }
      optimizer.step(learning_rate);
      report_step(step.index + 1, total * (1.0f / static_cast<float>(parts)));
    }
    report_memory(options["total_epochs"] * loader.steps_per_epoch());
    return 0;
  });
}
