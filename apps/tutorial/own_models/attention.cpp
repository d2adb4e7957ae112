// SPDX-License-Identifier: Apache-2.0
// Trains a custom model whose attention is written out. docs/own_models.md explains it.
#include <cmath>
#include <iostream>
#include <memory>
#include <string>

#include "../options.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/file.h"
#include "lockstep/data/corpus.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/generate.h"
#include "lockstep/nn/layers.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/operators.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tokenizer/char_tokenizer.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr int64_t context = 32, width = 64, heads = 4, size = width / heads;
constexpr const char* known = "steps=300 --batch_size=8 --ranks=0 --replicas=0";

/// Returns a mask [time, time]. Added to scores, it hides later positions.
Tensor causal_mask(int64_t time) {
  const Tensor mask = zeros({time, time});
  for (int64_t i = 0; i < time * time; ++i)
    if (i % time > i / time) mask.data<float>()[i] = -INFINITY;
  return mask;
}

/// A model that predicts the next character from all earlier ones. It has one layer of multi-head attention.
class AttentionModel : public Module {
 public:
  explicit AttentionModel(int64_t characters)
      : tokens_(add_part<Embedding>("tokens", characters, width, DType::f32, small_values())),
        head_(add_part<Linear>("head", width, characters)) {}

  /// Maps inputs i32 [batch, time <= context] to logits [batch, time, characters].
  Tensor operator()(const Tensor& inputs) const {
    const int64_t time = inputs.shape()[1];
    const Tensor x = tokens_(inputs) + positions_.slice(0, time);
    const Tensor q = split(query_(x)), k = split(key_(x)), v = split(value_(x));
    const double factor = 1.0 / std::sqrt(static_cast<double>(size));
    const Tensor weights = softmax(factor * matmul(q, transpose(k)) + causal_mask(time));
    const Tensor attended = x + project_(transpose(matmul(weights, v), 1, 2).reshape(x.shape()));
    return head_(attended + relu(hidden_(attended)));
  }

 private:
  /// Splits [batch, time, width] into heads: [batch, heads, time, size].
  static Tensor split(const Tensor& x) { return transpose(x.reshape({x.shape()[0], -1, heads, size}), 1, 2); }

  static InitialValues small_values() { return uniform_values(-0.125, 0.125); }

  Tensor positions_ = add_parameter("positions", {context, width}, small_values());
  Embedding& tokens_;
  Linear& query_ = add_part<Linear>("query", width, width);
  Linear& key_ = add_part<Linear>("key", width, width);
  Linear& value_ = add_part<Linear>("value", width, width);
  Linear& project_ = add_part<Linear>("project", width, width);
  Linear& hidden_ = add_part<Linear>("hidden", width, width);
  Linear& head_;
};

int main(int argc, char** argv) {
  const Options options(argc, argv, known);
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const std::string text = sample_text();
    const CharTokenizer tokenizer(text);
    const auto data = std::make_shared<TokenWindows>(tokenizer.encode(text), context);
    const AttentionModel model(tokenizer.vocabulary_size());
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
    if (!world.is_first()) return 0;
    write_file("attention.safetensors", to_safetensors({.tensors = model.parameters(), .metadata = {}}));
    const auto writer = [&](const Tensor& ids) { return model(ids); };
    std::cout << tokenizer.decode(generate(writer, context, tokenizer.encode("- "), {.tokens = 120})) << "\n";
    return 0;
  });
}
