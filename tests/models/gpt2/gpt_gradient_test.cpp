// SPDX-License-Identifier: Apache-2.0
// Compares the gradients of whole models with central differences. Checks the two sources of a shared
// weight's gradient.
#include <algorithm>
#include <vector>

#include "lockstep/models/gpt2/gpt.h"
#include "lockstep/nn/layers.h"
#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::gpt_gradient_test {
namespace {

constexpr int64_t vocabulary = 13, time_steps = 7, width = 10;

Gpt::Options options_in_f64() {
  return {.vocabulary = vocabulary,
          .block_size = time_steps + 1,
          .layers = 2,
          .heads = 2,
          .width = width,
          .dtype = DType::f64};
}

/// Enlarges the parameters. GPT-2's initial values are so near to zero that most slopes vanish; here every
/// path counts.
void enlarge(const Gpt& model) {
  uint32_t place = 0;
  for (const auto& [name, tensor] : model.parameters()) {
    const bool is_norm_weight = name.find("ln_") != std::string::npos && name.ends_with(".weight");
    fill_normal(tensor, is_norm_weight ? 1.0 : 0.0, 0.3, 17, place++);
  }
}

void check_gpt(const Gpt::Options& options, const Context& context) {
  const Gpt model(options, 1);
  enlarge(model);
  const Tensor ids = random_ids({3, time_steps}, vocabulary, 1);
  Tensor targets = random_ids({3, time_steps}, vocabulary, 2);
  targets.data<int32_t>()[4] = -1;
  expect_gradients(
      model.parameters(), [&] { return cross_entropy(model(ids, context), targets); }, 24);
}

TEST(GptGradient, TiedWithBiases) { check_gpt(options_in_f64(), {}); }

TEST(GptGradient, UntiedWithoutBiasesAndTheExactGelu) {
  Gpt::Options options = options_in_f64();
  options.tie_weights = false;
  options.has_bias = false;
  options.activation = Gelu::erf;
  check_gpt(options, {});
}

TEST(GptGradient, WithDropout) {
  Gpt::Options options = options_in_f64();
  options.dropout = 0.2;
  check_gpt(options, {.training = true, .seed = 3, .step = 5, .sample = 8});
}

// The untied model's head holds the same values as the tied table. Its two gradients are the two parts of the
// tied one.
TEST(GptGradient, ATiedWeightHasTheGradientsOfBothItsUses) {
  Gpt::Options options = options_in_f64();
  const Gpt tied(options, 1);
  options.tie_weights = false;
  const Gpt untied(options, 1);
  const Tensor ids = random_ids({3, time_steps}, vocabulary, 1);
  const std::vector<NamedTensor> ours = tied.parameters(), theirs = untied.parameters();
  const Tensor &shared = ours.front().tensor, &embedding = theirs.front().tensor,
               &head = theirs.back().tensor;
  copy(embedding, head);
  ASSERT_TRUE(has_same_bits(shared, embedding));

  int ready = 0;
  leaf_gradient(shared).ready = [&] { ++ready; };
  backward(cross_entropy(tied(ids, {}), ids));
  backward(cross_entropy(untied(ids, {}), ids));
  EXPECT_EQ(ready, 1);
  EXPECT_TRUE(has_same_bits(shared.grad(), add(head.grad(), embedding.grad())));
  EXPECT_FALSE(has_same_bits(shared.grad(), head.grad()));
  for (size_t p = 1; p < ours.size(); ++p)
    EXPECT_TRUE(has_same_bits(ours[p].tensor.grad(), theirs[p].tensor.grad())) << ours[p].name;
}

TEST(GptGradient, PositionsBeyondTheContextHaveNone) {
  const Gpt model(options_in_f64(), 1);
  const Tensor ids = random_ids({3, time_steps}, vocabulary, 1);
  backward(cross_entropy(model(ids, {}), ids));
  const Tensor positions = model.parameters()[1].tensor.grad();
  EXPECT_EQ(to_doubles(positions.slice(time_steps, time_steps + 1)), std::vector<double>(width, 0.0));
  const std::vector<double> last = to_doubles(positions.slice(time_steps - 1, time_steps));
  EXPECT_TRUE(std::ranges::none_of(last, [](double value) { return value == 0.0; }));
}

TEST(GptGradient, ThreadsDoNotShow) {
  Gpt::Options options{
      .vocabulary = 65, .block_size = 64, .layers = 2, .heads = 4, .width = 128, .dropout = 0.1};
  const auto gradients = [&](int threads) {
    set_threads(threads);
    const Gpt model(options, 1);
    const Tensor ids = random_ids({5, 61}, options.vocabulary, 1);
    backward(cross_entropy(model(ids, {.training = true, .seed = 2}), ids));
    set_threads(1);
    return model.parameters();
  };
  const std::vector<NamedTensor> one = gradients(1);
  for (const int threads : {2, 3}) {
    const std::vector<NamedTensor> several = gradients(threads);
    for (size_t p = 0; p < one.size(); ++p)
      EXPECT_TRUE(has_same_bits(one[p].tensor.grad(), several[p].tensor.grad())) << one[p].name;
  }
}

TEST(Mlp, IsLinearsWithReluBetween) {
  const Mlp model({3, 4, 2});
  const std::vector<NamedTensor> parameters = model.parameters();
  ASSERT_EQ(parameters.size(), 4U);
  EXPECT_EQ(parameters[2].name, "layers.1.weight");
  EXPECT_EQ(parameters[3].name, "layers.1.bias");
  EXPECT_EQ(count_parameters(parameters), 3 * 4 + 4 + 4 * 2 + 2);
  for (uint32_t p = 0; p < 4; ++p) fill_normal(parameters[p].tensor, 0, 1, 5, p);
  const Tensor x = uniform_tensor({6, 3}, 1, DType::f32);
  const Tensor hidden = relu(linear(x, parameters[0].tensor, parameters[1].tensor));
  EXPECT_TRUE(has_same_bits(model(x), linear(hidden, parameters[2].tensor, parameters[3].tensor)));
  EXPECT_THROW(Mlp({3}), Error);
}

}  // namespace
}  // namespace lockstep::gpt_gradient_test
