// SPDX-License-Identifier: Apache-2.0
// Trains a convolutional model that is written with operations. docs/recurrent_models.md explains it.
#include <iostream>
#include <memory>

#include "../options.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/file.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/kernels/random.h"
#include "lockstep/nn/layers.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/operators.h"
#include "lockstep/tensor/safetensors.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr int64_t side = 14;
constexpr const char* known = "steps=200 --batch_size=16 --ranks=0 --replicas=0";

/// Images [side, side, 1] of noise with one bright bar. The class is its direction: 0 across, 1 down.
class Bars : public Dataset {
 public:
  explicit Bars(uint64_t seed) : seed_(seed) {}

  int64_t size() const override { return 4096; }
  SampleField input() const override { return {{side, side, 1}, DType::f32}; }
  SampleField target() const override { return {{}, DType::i32}; }
  void fetch(int64_t index, void* input, void* target) const override {
    const auto at = static_cast<uint32_t>(index);
    const auto place = philox(seed_, {at, 0, 0, 1});
    const bool is_down = place[0] % 2 == 1;
    const int64_t line = 1 + place[1] % (side - 2), first = place[2] % (side - 6);
    auto* pixels = static_cast<float*>(input);
    for (int64_t i = 0; i < side * side; ++i) {
      const int64_t across = is_down ? i / side : i % side, along = is_down ? i % side : i / side;
      const bool is_bar = along == line && across >= first && across < first + 6;
      const float noise = uniform_float(philox(seed_, {at, static_cast<uint32_t>(i), 0, 0})[0]);
      pixels[i] = noise + (is_bar ? 1.0f : 0.0f);
    }
    *static_cast<int32_t*>(target) = is_down ? 1 : 0;
  }

 private:
  uint64_t seed_;
};

/// A 3 x 3 convolution without padding.
class Convolution : public Module {
 public:
  Convolution(int64_t inputs, int64_t outputs) : weights_(add_part<Linear>("weights", 9 * inputs, outputs)) {}

  /// Maps [batch, height, width, inputs] to [batch, height - 2, width - 2, outputs].
  Tensor operator()(const Tensor& x) const {
    const int64_t height = x.shape()[1] - 2, width = x.shape()[2] - 2;
    std::vector<Tensor> neighbours;
    for (int64_t down = 0; down < 3; ++down) {
      const Tensor rows = slice(x, 1, down, down + height);
      for (int64_t across = 0; across < 3; ++across)
        neighbours.push_back(slice(rows, 2, across, across + width));
    }
    return weights_(cat(neighbours, -1));
  }

 private:
  Linear& weights_;
};

/// Returns the largest of each 2 x 2 values: [batch, height / 2, width / 2, channels].
Tensor max_pool(const Tensor& x) {
  const int64_t batch = x.shape()[0], height = x.shape()[1] / 2, width = x.shape()[2] / 2,
                channels = x.shape()[3];
  const Tensor rows = max(x.reshape({batch * height, 2, 2 * width, channels}), 1);
  return max(rows.reshape({batch * height * width, 2, channels}), 1)
      .reshape({batch, height, width, channels});
}

class ConvolutionalModel : public Module {
 public:
  /// Maps [batch, side, side, 1] to logits [batch, 2].
  Tensor operator()(const Tensor& x) const {
    const Tensor features = max_pool(relu(second_(max_pool(relu(first_(x))))));
    return head_(features.reshape({x.shape()[0], -1}));
  }

 private:
  Convolution& first_ = add_part<Convolution>("first", 1, 8);     // 14 -> 12, pooled to 6
  Convolution& second_ = add_part<Convolution>("second", 8, 16);  // 6 -> 4, pooled to 2
  Linear& head_ = add_part<Linear>("head", 2 * 2 * 16, 2);
};

int main(int argc, char** argv) {
  const Options options(argc, argv, known);
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const auto data = std::make_shared<Bars>(1);
    const Bars unseen(2);
    const ConvolutionalModel model;
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {.replicas = options["--replicas"]});
    AdamW optimizer(parameters, {});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"]});

    for (int step = 1; step <= options["steps"]; ++step) {
      for (const Batch& batch : loader.next().batches)
        ddp.backward(cross_entropy(model(batch.inputs), batch.targets));
      const float loss = ddp.wait();
      optimizer.step(learning_rate);
      if (step % 50 != 0) continue;
      const double accuracy = ddp.evaluate(unseen, 256, [&](const Batch& batch) {
        return mean(convert(argmax(model(batch.inputs)) == batch.targets, DType::f32));
      });
      if (world.is_first())
        std::cout << concat("Step ", step, " | Loss: ", loss, " | Accuracy: ", accuracy, "\n") << std::flush;
    }
    if (world.is_first())
      write_file("convolution.safetensors", to_safetensors({.tensors = model.parameters(), .metadata = {}}));
    return 0;
  });
}
