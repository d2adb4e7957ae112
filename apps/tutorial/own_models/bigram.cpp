// SPDX-License-Identifier: Apache-2.0
// Trains a custom model whose loss is written out. docs/own_models.md explains it.
#include <iostream>
#include <memory>
#include <string>

#include "../options.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/file.h"
#include "lockstep/data/corpus.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/operators.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tokenizer/char_tokenizer.h"

using namespace lockstep;

constexpr double learning_rate = 0.1;
constexpr const char* known = "steps=200 --batch_size=8 --ranks=0 --replicas=0";

/// A model that predicts the next character from the last one. Row i of the table has the logits of the
/// character after i.
class Bigram : public Module {
 public:
  explicit Bigram(int64_t characters)
      : table_(add_parameter("table", {characters, characters}, constant_values(0.0))),
        one_hot_(zeros({characters, characters})) {
    for (int64_t i = 0; i < characters; ++i) one_hot_.data<float>()[i * characters + i] = 1.0f;
  }

  /// Inputs i32 [batch, time] -> logits [batch, time, characters].
  Tensor operator()(const Tensor& inputs) const { return embedding(inputs, table_); }

  /// Returns the mean of -log softmax(logits)[target] without the function cross_entropy.
  Tensor loss(const Tensor& inputs, const Tensor& targets) const {
    const Tensor logits = (*this)(inputs);
    const Tensor log_probabilities = logits - log(sum(exp(logits), -1, true));
    return -1.0 * mean(sum(log_probabilities * embedding(targets, one_hot_), -1));
  }

 private:
  Tensor table_;
  Tensor one_hot_;  ///< a constant: row i is 1 at i
};

int main(int argc, char** argv) {
  const Options options(argc, argv, known);
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const std::string text = sample_text();
    const CharTokenizer tokenizer(text);
    const auto data = std::make_shared<TokenWindows>(tokenizer.encode(text), /*block_size=*/32);
    const Bigram model(tokenizer.vocabulary_size());
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {.replicas = options["--replicas"]});
    AdamW optimizer(parameters, {});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"]});

    for (int step = 1; step <= options["steps"]; ++step) {
      for (const Batch& batch : loader.next().batches) ddp.backward(model.loss(batch.inputs, batch.targets));
      const float loss = ddp.wait();
      optimizer.step(learning_rate);
      if (world.is_first() && step % 50 == 0)
        std::cout << concat("Step ", step, " | Loss: ", loss, "\n") << std::flush;
    }
    if (world.is_first())
      write_file("bigram.safetensors", to_safetensors({.tensors = model.parameters(), .metadata = {}}));
    return 0;
  });
}
