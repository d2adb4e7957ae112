// SPDX-License-Identifier: Apache-2.0
// Exercise 6b, layers in parts. No rank has the whole model: it keeps a third of each layer's values. A layer
// is gathered for the forward, again for the backward, and released after each. Every rank moves its part.
// This is the third stage of ZeRO, dist.shard = full, with the recomputation of 5c.
// See docs/tutorial/exercises.md, 6b.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr float learning_rate = 1e-2f;

struct Layer {
  int64_t inputs, outputs;
  Numbers part;  // this rank's part of the weights followed by the biases
  Tensor whole;  // all weights and biases while the layer is gathered

  Tensor operator()(const Tensor& x) const {
    expect(static_cast<bool>(whole), "a layer is used but not gathered");
    const Tensor weight = whole.slice(0, inputs * outputs).reshape({outputs, inputs});
    const Tensor y = linear(x, weight, whole.slice(inputs * outputs, whole.size()));
    return outputs == 1 ? y : relu(y);
  }
};

void gather(const World& world, Layer& layer) {
  Tensor all = empty({(layer.inputs + 1) * layer.outputs});
  const auto bytes = static_cast<int64_t>(layer.part.size() * sizeof(float));
  // blank<void>("bring the parts of all ranks into all, in the order of the ranks")
  world.communicator().all_gather(layer.part.data(), bytes, all.data<float>());
  layer.whole = all.set_requires_grad();
}

/// Returns the layers with only this rank's part of each.
std::vector<Layer> layers_of(const World& world, const std::vector<int64_t>& widths) {
  const Mlp model(widths);
  const std::vector<NamedTensor> list = model.parameters();  // weight, bias, weight, ...
  std::vector<Layer> layers;
  for (size_t k = 0; k + 1 < widths.size(); ++k) {
    Numbers all = numbers(list[2 * k].tensor);
    for (const float bias : numbers(list[2 * k + 1].tensor)) all.push_back(bias);
    const Numbers part = cut(all, world.size())[static_cast<size_t>(world.rank())];
    layers.push_back({.inputs = widths[k], .outputs = widths[k + 1], .part = part, .whole = {}});
  }
  return layers;
}

int64_t values_here(const std::vector<Layer>& layers) {
  int64_t count = 0;
  for (const Layer& layer : layers) count += layer.whole ? layer.whole.size() : 0;
  return count;
}

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=3");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    std::vector<Layer> layers = layers_of(world, {20, 32, 32, 1});
    Loader loader(
        data,
        {.replicas = world.size(), .local_replicas = {world.rank()}, .batch_size = options["--batch_size"]});

    int64_t most = 0;
    for (int64_t i = 0; i < options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      std::vector<Tensor> inputs = {batch.inputs};  // the input of each layer, then the result
      for (Layer& layer : layers) {
        const NoGrad no_grad;
        gather(world, layer);
        inputs.push_back(layer(inputs.back()));
        most = std::max(most, values_here(layers));
        // blank<void>("let go of the layer")
        layer.whole = {};
      }
      Tensor result = inputs.back();
      const Tensor loss = mean_squared_error(result.set_requires_grad(), batch.targets);
      backward(loss);
      Tensor dy = result.grad();
      for (size_t k = layers.size(); k-- > 0;) {
        Layer& layer = layers[k];
        // blank<void>("the layer is needed once more")
        gather(world, layer);
        Tensor x = inputs[k];
        backward(layer(x.set_requires_grad()), dy);  // leaves layer.whole.grad() and
        dy = x.grad();
        const Numbers mean = mean_over_ranks(world, numbers(layer.whole.grad()));
        most = std::max(most, values_here(layers));
        layer.whole = {};
        const size_t share = layer.part.size(), first = share * static_cast<size_t>(world.rank());
        for (size_t j = 0; j < share; ++j)
          // blank<float>("the gradient of this value"): mean[first + j]
          layer.part[j] = std::fma(-learning_rate, mean[first + j], layer.part[j]);
      }
      const float mean_loss = mean_over_ranks(world, static_cast<float>(item(loss)));
      if (world.is_first()) report_step(step.index + 1, mean_loss);
    }
    report_ranks(world, options["total_epochs"] * loader.steps_per_epoch(),
                 concat("had at most ", most, " values of gathered layers at a time"));
    return 0;
  });
}
