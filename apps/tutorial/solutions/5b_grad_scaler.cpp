// SPDX-License-Identifier: Apache-2.0
// Exercise 5b, the gradient scaler by hand. This model computes in fp16, whose largest number is 65504. All
// gradients are multiplied by a scale in the backward pass, so that small ones are not rounded to 0. If a
// gradient becomes infinite, the step is skipped and the scale is halved. After some good steps the scale is
// doubled again: after 2000 in torch.amp.GradScaler, after 8 here.
// See docs/tutorial/exercises.md, 5b.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr int growth_interval = 8;

struct Scaler {
  float scale = 65536.0f;
  int good_steps = 0;  // since the scale was last changed

  void update(bool is_finite) {
    // blank<int>("how many good steps there are now since the last overflow"): is_finite ? good_steps + 1 : 0
    good_steps = is_finite ? good_steps + 1 : 0;
    // blank<float>("the scale after an overflow"): scale / 2
    if (!is_finite) scale = scale / 2;
    if (good_steps == growth_interval) {
      scale *= 2;
      good_steps = 0;
    }
  }
};

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32");
  return run_alone([&] {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 32, 1});
    ParameterSpace parameters(model);
    parameters.set_precision(DType::f16);
    Sgd optimizer(parameters, {});
    Loader loader(data, {.batch_size = options["--batch_size"]});
    Scaler scaler;

    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      const Tensor loss = mean_squared_error(model(batch.inputs), batch.targets);
      backward(loss, scaler.scale);

      float* gradients = parameters.gradients().data<float>();
      bool is_finite = true;
      for (int64_t j = 0; j < parameters.layout.trainable_elements(); ++j) {
        // blank<float>("the gradient as it is without the scale"): gradients[j] / scaler.scale
        gradients[j] = gradients[j] / scaler.scale;
        is_finite = is_finite && std::isfinite(gradients[j]);
      }
      // blank<void>("move the parameters, unless there is an overflow")
      if (is_finite) optimizer.step(learning_rate);
      scaler.update(is_finite);
      report_step(step.index + 1, static_cast<float>(item(loss)));
      if (!is_finite)
        report_words(step.index + 1, concat("skipped, scale ", static_cast<int64_t>(scaler.scale)));
    }
    return 0;
  });
}
