// SPDX-License-Identifier: Apache-2.0
// Exercise 1a, the loop. A model learns in four lines: the prediction, its loss, the gradient of the loss for
// each parameter, and a step against that gradient. Fill in these lines. The rest of the training program is
// here. See docs/tutorial/exercises.md, 1a.
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
    Loader loader(data, {.batch_size = options["--batch_size"]});

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      // blank<Tensor>("what the model makes of the inputs"): model(batch.inputs)
      const Tensor prediction = model(batch.inputs);
      // blank<Tensor>("the mean squared error of the prediction"): mean_squared_error(prediction, batch.targets)
      const Tensor loss = mean_squared_error(prediction, batch.targets);
      // blank<void>("the gradient of the loss for every parameter")
      backward(loss);
      // blank<void>("the optimizer's step")
      optimizer.step(learning_rate);
      report_step(step.index + 1, static_cast<float>(item(loss)));
    }
    return 0;
  });
}
