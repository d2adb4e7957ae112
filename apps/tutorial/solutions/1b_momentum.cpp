// SPDX-License-Identifier: Apache-2.0
// Exercise 1b, momentum by hand. The optimizer is removed. Update the parameters yourself, as PyTorch's SGD
// with momentum 0.9 does. Values, gradients and velocities are three arrays of `count` numbers.
// See docs/tutorial/exercises.md, 1b.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr float learning_rate = 1e-2f;
constexpr float momentum = 0.9f;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32");
  return run_alone([&] {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    Loader loader(data, {.batch_size = options["--batch_size"]});

    const auto count = static_cast<size_t>(parameters.layout.elements());
    float* values = parameters.values().data<float>();
    const float* gradients = parameters.gradients().data<float>();
    // blank<float>("the velocity of a parameter that has not moved yet"): 0.0f
    Numbers velocities(count, 0.0f);

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      const Tensor loss = mean_squared_error(model(batch.inputs), batch.targets);
      backward(loss);
      for (size_t j = 0; j < count; ++j) {
        // blank<float>("the new velocity"): momentum * velocities[j] + gradients[j]
        velocities[j] = momentum * velocities[j] + gradients[j];
        // blank<float>("the new value, rounded once: std::fma(a, b, c) is a * b + c"): std::fma(-learning_rate, velocities[j], values[j])
        values[j] = std::fma(-learning_rate, velocities[j], values[j]);
      }
      report_step(step.index + 1, static_cast<float>(item(loss)));
    }
    return 0;
  });
}
