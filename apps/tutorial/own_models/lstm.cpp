// SPDX-License-Identifier: Apache-2.0
// Trains a recurrent model that is written with operations. docs/recurrent_models.md explains it.
#include <iostream>
#include <memory>
#include <string>

#include "../options.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/file.h"
#include "lockstep/data/corpus.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/layers.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/operators.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tokenizer/char_tokenizer.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr const char* known = "steps=200 --batch_size=8 --ranks=0 --replicas=0";

/// A layer of long short-term memory (Hochreiter & Schmidhuber 1997), with the gates of PyTorch's LSTM.
class Lstm : public Module {
 public:
  Lstm(int64_t inputs, int64_t width)
      : width_(width),
        of_input_(add_part<Linear>("of_input", inputs, 4 * width)),
        of_state_(add_part<Linear>("of_state", width, 4 * width)) {}

  /// Maps [batch, time, inputs] to the states after each step, [batch, time, width].
  Tensor operator()(const Tensor& x) const {
    const int64_t batch = x.shape()[0], time = x.shape()[1];
    const Tensor from_input = of_input_(x);  // one matmul for all steps
    Tensor state = zeros({batch, width_}), cell = zeros({batch, width_});
    std::vector<Tensor> states;
    for (int64_t t = 0; t < time; ++t) {
      const Tensor now = slice(from_input, 1, t, t + 1).reshape({batch, 4 * width_});
      const std::vector<Tensor> gates = chunk(now + of_state_(state), 4, -1);
      const Tensor input = sigmoid(gates[0]), forget = sigmoid(gates[1]), output = sigmoid(gates[3]);
      cell = forget * cell + input * tanh(gates[2]);
      state = output * tanh(cell);
      states.push_back(state);
    }
    return stack(states, 1);
  }

 private:
  int64_t width_;
  Linear& of_input_;
  Linear& of_state_;
};

/// A model that predicts the next character from all earlier ones.
class RecurrentModel : public Module {
 public:
  explicit RecurrentModel(int64_t characters)
      : tokens_(add_part<Embedding>("tokens", characters, 32)),
        lstm_(add_part<Lstm>("lstm", 32, 64)),
        head_(add_part<Linear>("head", 64, characters)) {}

  /// Maps inputs i32 [batch, time] to logits [batch, time, characters].
  Tensor operator()(const Tensor& inputs) const { return head_(lstm_(tokens_(inputs))); }

 private:
  Embedding& tokens_;
  Lstm& lstm_;
  Linear& head_;
};

int main(int argc, char** argv) {
  const Options options(argc, argv, known);
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const std::string text = sample_text();
    const CharTokenizer tokenizer(text);
    const auto data = std::make_shared<TokenWindows>(tokenizer.encode(text), /*block_size=*/32);
    const RecurrentModel model(tokenizer.vocabulary_size());
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {.replicas = options["--replicas"]});
    AdamW optimizer(parameters, {});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"]});

    for (int step = 1; step <= options["steps"]; ++step) {
      for (const Batch& batch : loader.next().batches)
        ddp.backward(cross_entropy(model(batch.inputs), batch.targets));
      const float loss = ddp.wait();
      optimizer.step(learning_rate);
      if (world.is_first() && step % 50 == 0)
        std::cout << concat("Step ", step, " | Loss: ", loss, "\n") << std::flush;
    }
    if (world.is_first())
      write_file("lstm.safetensors", to_safetensors({.tensors = model.parameters(), .metadata = {}}));
    return 0;
  });
}
