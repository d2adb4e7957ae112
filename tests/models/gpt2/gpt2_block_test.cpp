// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/gpt2/gpt2_block.h"

#include <set>
#include <vector>

#include "support/gradient_check.h"

namespace lockstep::gpt2_block_test {
namespace {

constexpr int64_t width = 64;
const Context training{.training = true, .seed = 9, .step = 4, .sample = 20};

/// The dropout masks after attention and after the feed-forward branch. Both branches are constant to make
/// the masks visible: their weights are zero and their last biases 1 and 2.
struct Masks {
  std::vector<double> attention, feed_forward;

  explicit Masks(uint32_t layer) {
    constexpr double dropout = 0.5, kept = 1 / (1 - dropout);
    const Gpt2Block block({.heads = 2, .width = width, .dropout = dropout, .dtype = DType::f64}, layer);
    for (const auto& [name, tensor] : block.parameters()) {
      if (!name.starts_with("ln_")) fill(tensor, 0.0);
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

TEST(Gpt2Block, EveryPlaceOfEveryLayerDropsOnItsOwn) {
  std::set<std::vector<double>> masks;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    const Masks of_layer(layer);
    masks.insert(of_layer.attention);
    masks.insert(of_layer.feed_forward);
  }
  masks.insert(to_doubles(dropout(full({1, 3, width}, 0.5), 0.5, training.key(0))));
  EXPECT_EQ(masks.size(), 9U);
}

TEST(Gpt2Block, TheLayerShowsInTrainingOnly) {
  const Gpt::Options options{.heads = 2, .width = width, .dropout = 0.5};
  const Gpt2Block first(options, 0), second(options, 1);
  for (const TransformerBlock* block : {&first, &second}) {
    uint32_t place = 0;
    for (const auto& [name, tensor] : block->parameters()) fill_normal(tensor, 0.0, 0.2, 5, place++);
  }
  const Tensor x = uniform_tensor({2, 5, width}, 1, DType::f32);
  EXPECT_TRUE(has_same_bits(first(x, {}), second(x, {})));
  EXPECT_FALSE(has_same_bits(first(x, training), second(x, training)));
}

}  // namespace
}  // namespace lockstep::gpt2_block_test
