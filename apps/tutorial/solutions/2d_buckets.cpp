// SPDX-License-Identifier: Apache-2.0
// Exercise 2d, buckets by hand. Many small messages are slow. One large message has to wait for the end of
// backward(). So gradients are sent in buckets. Parameters share a bucket while they fit, last layer first. A
// bucket is sent when its last gradient is ready, while backward() still computes the earlier layers.
// See docs/tutorial/exercises.md, 2d.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr int64_t bucket_size = 545;  // numbers

struct Bucket {
  std::vector<NamedTensor> parameters;
  int64_t size = 0;  // numbers in the bucket
  size_t ready = 0;  // gradients of this step that are ready

  std::string names() const {
    std::string words;
    for (const NamedTensor& parameter : parameters) words += " " + parameter.name;
    return words;
  }
};

/// Averages the gradients of a bucket over the ranks with one message.
void exchange(const World& world, const Bucket& bucket) {
  Numbers packed;
  for (const NamedTensor& parameter : bucket.parameters) {
    const Numbers gradient = numbers(parameter.tensor.grad());
    // blank<void>("append this gradient to packed")
    packed.insert(packed.end(), gradient.begin(), gradient.end());
  }
  const Numbers mean = mean_over_ranks(world, packed);
  const float* next = mean.data();
  for (const NamedTensor& parameter : bucket.parameters) {
    std::copy_n(next, parameter.tensor.size(), parameter.tensor.grad().data<float>());
    // blank<void>("go on to where the next parameter's numbers begin")
    next += parameter.tensor.size();
  }
}

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=2");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 32, 16, 1});
    ParameterSpace parameters(model);
    Sgd optimizer(parameters, {});
    Loader loader(
        data,
        {.replicas = world.size(), .local_replicas = {world.rank()}, .batch_size = options["--batch_size"]});

    std::vector<NamedTensor> list = model.parameters();
    std::reverse(list.begin(), list.end());
    std::vector<Bucket> buckets(1);
    for (const NamedTensor& parameter : list) {
      // blank<bool>("does it fit into the last bucket?"): buckets.back().size + parameter.tensor.size() <= bucket_size
      const bool fits = buckets.back().size + parameter.tensor.size() <= bucket_size;
      if (!fits) buckets.emplace_back();
      buckets.back().parameters.push_back(parameter);
      buckets.back().size += parameter.tensor.size();
    }
    int64_t running = 1;  // the current step
    for (Bucket& bucket : buckets)
      for (const NamedTensor& parameter : bucket.parameters)
        leaf_gradient(parameter.tensor).ready = [&world, &bucket, &running] {  // called by backward()
          ++bucket.ready;
          // blank<bool>("is every gradient of the bucket there?"): bucket.ready == bucket.parameters.size()
          const bool leaves = bucket.ready == bucket.parameters.size();
          if (!leaves) return;
          bucket.ready = 0;
          exchange(world, bucket);
          if (running == 1 && world.is_first()) report_words(running, "bucket:" + bucket.names());
        };

    for (; running <= options["total_epochs"] * loader.steps_per_epoch(); ++running) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      const Tensor loss = mean_squared_error(model(batch.inputs), batch.targets);
      backward(loss);
      optimizer.step(learning_rate);
      const float mean_loss = mean_over_ranks(world, static_cast<float>(item(loss)));
      if (world.is_first()) report_step(running, mean_loss);
    }
    return 0;
  });
}
