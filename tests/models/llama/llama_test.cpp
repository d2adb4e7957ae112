// SPDX-License-Identifier: Apache-2.0
// The models of the families llama and qwen. tests/huggingface compares them with transformers.
#include "lockstep/models/llama/llama.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "lockstep/kernels/attention_heads.h"
#include "lockstep/nn/generate.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::llama_test {
namespace {

constexpr int64_t vocabulary = 13, time_steps = 7;

Llama::Options options_of(LlamaKind kind, DType dtype) {
  return {.kind = kind,
          .vocabulary = vocabulary,
          .block_size = time_steps + 1,
          .layers = 2,
          .heads = {4, 2},
          .head_size = 6,
          .width = 10,
          .hidden = 9,
          .tie_weights = kind == LlamaKind::llama,
          .dtype = dtype};
}

/// Enlarges the parameters, so that every path counts.
void enlarge(const LanguageModel& model, double std) {
  uint32_t place = 0;
  for (const auto& [name, tensor] : model.parameters()) {
    const bool is_norm_weight = name.find("norm") != std::string::npos;
    fill_normal(tensor, is_norm_weight ? 1.0 : 0.0, std, 17, place++);
  }
}

class LlamaOf : public testing::TestWithParam<LlamaKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, LlamaOf,
                         testing::Values(LlamaKind::llama, LlamaKind::qwen2, LlamaKind::qwen3));

TEST_P(LlamaOf, GradientsAreThoseOfCentralDifferences) {
  for (const double dropout : {0.0, 0.2}) {
    Llama::Options options = options_of(GetParam(), DType::f64);
    options.dropout = dropout;
    const Llama model(options, 1);
    enlarge(model, 0.3);
    const Context context{.training = true, .seed = 3, .step = 5, .sample = 8};
    const Tensor ids = random_ids({3, time_steps}, vocabulary, 1);
    Tensor targets = random_ids({3, time_steps}, vocabulary, 2);
    targets.data<int32_t>()[4] = -1;
    expect_gradients(
        model.parameters(), [&] { return cross_entropy(model(ids, context), targets); }, 24);
  }
}

/// The logits of a text that is read in parts, next to another text, must have the bits of the whole forward.
TEST_P(LlamaOf, TheCacheHasTheBitsOfTheWholeForward) {
  const NoGrad no_grad;
  for (const DType precision : {DType::f32, DType::bf16, DType::f16})
    for (const int threads : {1, 3}) {
      set_threads(threads);
      const Llama model(options_of(GetParam(), DType::f32), 1);
      ParameterSpace space(model.parameters());
      space.set_precision(precision);
      enlarge(model, 0.4);
      space.copies.refresh();
      const std::vector<int32_t> text = {3, 1, 4, 1, 5, 9, 2, 6}, other = {7, 0, 7};
      const Tensor whole = model(from_values(text, {1, 8}), {}).reshape({8, -1});
      KeyValueCache cache{.texts = 2, .capacity = 8};
      int64_t past = 0;
      for (const int64_t count : {3, 1, 2, 1, 1}) {
        std::vector<NextTokens> parts{
            {.text = 1, .past = past, .ids = {text.begin() + past, text.begin() + past + count}}};
        if (past < 3) parts.push_back({.text = 0, .past = past, .ids = other});
        past += count;
        const Tensor logits = model.next_logits(parts, cache);
        EXPECT_TRUE(has_same_bits(logits.slice(0, 1), whole.slice(past - 1, past)))
            << name(precision) << ", " << threads << " threads, " << past << " tokens";
      }
    }
  set_threads(1);
}

/// Those of Llama 3.1, computed in long double. A high frequency is kept, a low one divided.
TEST(RotaryFrequencies, AreThoseOfTheFormulaUpToLongContexts) {
  const RopeOptions scaled{
      .theta = 5e5, .scaling = RopeScaling::llama3, .factor = 8.0, .original_positions = 8192};
  const std::vector<float> plain = rotary_frequencies(128, {.theta = 5e5}),
                           mixed = rotary_frequencies(128, scaled);
  ASSERT_EQ(mixed.size(), 64U);
  int between = 0;
  for (size_t i = 0; i < 64; ++i) {
    const long double exact = std::pow(5e5L, -static_cast<long double>(i) / 64),
                      waves = 8192 * exact / 6.283185307179586L;
    const long double smooth = (waves - 1) / 3;
    const long double expected = waves < 1   ? exact / 8
                                 : waves > 4 ? exact
                                             : (1 - smooth) * exact / 8 + smooth * exact;
    between += waves >= 1 && waves <= 4 ? 1 : 0;
    // The exponent and its power are rounded to fp32: at most log(5e5) / 2 + 3 half units.
    EXPECT_NEAR(plain[i] / exact, 1.0L, 10 * 0x1p-24) << i;
    EXPECT_NEAR(mixed[i] / expected, 1.0L, 24 * 0x1p-24) << i;
  }
  EXPECT_GE(between, 3);
}

TEST(LlamaSizes, FlopsCountHeadsApartFromTheWidth) {
  const Llama model(options_of(LlamaKind::llama, DType::f32), 1);
  // A block has q and o of 10 x 24, k and v of 10 x 12, and three matrices of 10 x 9.
  const double weights = 13 * 10 + 2 * (2 * 240 + 2 * 120 + 3 * 90);
  EXPECT_EQ(model.flops_per_token(5), 6 * weights + 12.0 * 2 * 24 * 5);
}

}  // namespace
}  // namespace lockstep::llama_test
