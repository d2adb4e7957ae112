// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_block.h"

#include <set>
#include <vector>

#include "support/gradient_check.h"
#include "tensor/checkpoint.h"

namespace lockstep {
namespace {

constexpr int64_t width = 64;
constexpr Context training{.training = true, .seed = 9, .step = 4, .sample = 20};

/// What is kept after attention and after the feed-forward branch, seen by branches that are constants: their
/// weights are zero, their last biases 1 and 2.
struct Masks {
  std::vector<double> attention, feed_forward;

  explicit Masks(uint32_t layer) {
    constexpr double dropout = 0.5, kept = 1 / (1 - dropout);
    const TransformerBlock block(
        {.layer = layer, .heads = 2, .width = width, .dropout = dropout, .dtype = DType::f64});
    for (const auto& [name, tensor] : block.parameters()) {
      if (name == "attn.c_proj.bias") fill(tensor, 1.0 / kept);
      if (name == "mlp.c_proj.bias") fill(tensor, 2.0 / kept);
    }
    const NoGrad no_grad;
    for (const double value : to_doubles(block(zeros({1, 3, width}, DType::f64), training))) {
      EXPECT_TRUE((std::set<double>{0, 1, 2, 3}.contains(value))) << value;
      attention.push_back(value == 1 || value == 3);
      feed_forward.push_back(value >= 2);
    }
  }
};

TEST(TransformerBlock, EveryPlaceOfEveryLayerDropsOnItsOwn) {
  std::set<std::vector<double>> masks;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    const Masks of_layer(layer);
    masks.insert(of_layer.attention);
    masks.insert(of_layer.feed_forward);
  }
  masks.insert(to_doubles(dropout(full({1, 3, width}, 0.5), 0.5, training.key(0))));
  EXPECT_EQ(masks.size(), 9U);
}

TEST(TransformerBlock, TheLayerShowsInTrainingOnly) {
  const TransformerBlock::Options options{.layer = 0, .heads = 2, .width = width, .dropout = 0.5};
  TransformerBlock::Options next = options;
  next.layer = 1;
  const TransformerBlock first(options), second(next);
  for (const TransformerBlock* block : {&first, &second}) {
    uint32_t place = 0;
    for (const auto& [name, tensor] : block->parameters()) fill_normal(tensor, 0.0, 0.2, 5, place++);
  }
  const Tensor x = uniform_tensor({2, 5, width}, 1, DType::f32);
  EXPECT_TRUE(has_same_bits(first(x, {}), second(x, {})));
  EXPECT_FALSE(has_same_bits(first(x, training), second(x, training)));
}

/// The loss of two blocks and a norm, and all gradients.
std::vector<Tensor> loss_and_gradients(double dropout, bool runs_again) {
  TransformerBlock::Options options{.layer = 0, .heads = 2, .width = width, .dropout = dropout};
  const TransformerBlock first(options);
  options.layer = 1;
  const TransformerBlock second(options);
  const LayerNorm norm(width);
  std::vector<NamedTensor> parameters = first.parameters("0.");
  for (const auto& more : {second.parameters("1."), norm.parameters()})
    parameters.insert(parameters.end(), more.begin(), more.end());
  for (uint32_t p = 0; p < parameters.size(); ++p) fill_normal(parameters[p].tensor, 0.0, 0.2, 5, p);
  Tensor x = uniform_tensor({3, 11, width}, 1, DType::f32).set_requires_grad();
  parameters.push_back({"x", x});
  for (const TransformerBlock* block : {&first, &second}) {
    const auto run = [block](const std::vector<Tensor>& in) { return (*block)(in[0], training); };
    x = runs_again ? checkpoint(run, {x}) : run({x});
  }
  const Tensor loss = mean(norm(x));
  backward(loss);
  std::vector<Tensor> results{loss};
  for (const NamedTensor& parameter : parameters) results.push_back(parameter.tensor.grad());
  return results;
}

TEST(TransformerBlock, RunAgainInTheBackwardItGivesTheSameBits) {
  for (const double dropout : {0.0, 0.3}) {
    const auto once = loss_and_gradients(dropout, false), again = loss_and_gradients(dropout, true);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(has_same_bits(once[i], again[i])) << i;
  }
}

}  // namespace
}  // namespace lockstep
