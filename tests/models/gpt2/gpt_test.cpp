// SPDX-License-Identifier: Apache-2.0
// Checks a GPT's parts, its initial values, and the inputs that its logits may depend on.
#include "lockstep/models/gpt2/gpt.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/models/gpt2/initial_weights.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::gpt_test {
namespace {

constexpr int64_t vocabulary = 31, block_size = 12, width = 24;

Gpt::Options small_options() {
  return {.vocabulary = vocabulary, .block_size = block_size, .layers = 2, .heads = 3, .width = width};
}

std::vector<std::string> names_of(const Gpt& model) {
  std::vector<std::string> names;
  for (const NamedTensor& parameter : model.parameters()) names.push_back(parameter.name);
  return names;
}

const std::vector<std::string> block_names = {"ln_1.weight",      "ln_1.bias",          "attn.c_attn.weight",
                                              "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                                              "ln_2.weight",      "ln_2.bias",          "mlp.c_fc.weight",
                                              "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};

TEST(Gpt, ParametersHaveTheNamesAndTheOrderOfGpt2) {
  std::vector<std::string> expected = {"transformer.wte.weight", "transformer.wpe.weight"};
  for (int layer = 0; layer < 2; ++layer)
    for (const std::string& name : block_names)
      expected.push_back(concat("transformer.h.", layer, ".", name));
  expected.insert(expected.end(), {"transformer.ln_f.weight", "transformer.ln_f.bias"});
  EXPECT_EQ(names_of(Gpt(small_options(), 1)), expected);

  Gpt::Options options = small_options();
  options.tie_weights = false;
  expected.push_back("lm_head.weight");
  EXPECT_EQ(names_of(Gpt(options, 1)), expected);

  options.has_bias = false;
  std::erase_if(expected, [](const std::string& name) { return name.ends_with(".bias"); });
  EXPECT_EQ(names_of(Gpt(options, 1)), expected);
}

TEST(Gpt, WeightsOfBlocksAreInputsByOutputs) {
  const auto shape_of = [](const std::string& wanted) {
    for (const auto& [name, tensor] : Gpt(small_options(), 1).parameters())
      if (name == "transformer.h.1." + wanted) return tensor.shape();
    return Shape{};
  };
  EXPECT_EQ(shape_of("attn.c_attn.weight"), (Shape{width, 3 * width}));
  EXPECT_EQ(shape_of("attn.c_proj.weight"), (Shape{width, width}));
  EXPECT_EQ(shape_of("mlp.c_fc.weight"), (Shape{width, 4 * width}));
  EXPECT_EQ(shape_of("mlp.c_proj.weight"), (Shape{4 * width, width}));
}

TEST(Gpt, RowsBeyondTheVocabularyTakeNoPart) {
  for (const bool is_tied : {true, false})
    for (const int64_t rows_at_once : {0, 5}) {
      Gpt::Options options = small_options();
      options.tie_weights = is_tied;
      const Gpt plain(options, 1);
      options.rows = 64;
      const Gpt padded(options, 1);
      for (size_t p = 0; p < plain.parameters().size(); ++p) {
        const Tensor from = plain.parameters()[p].tensor, to = padded.parameters()[p].tensor;
        copy(from.detach(), to.detach().reshape({to.size()}).slice(0, from.size()));
      }
      const Tensor ids = from_values(std::vector<int32_t>{1, 5, 30, 2, 9, 9}, {2, 3});
      const Tensor targets = from_values(std::vector<int32_t>{5, 30, 0, 9, 9, 8}, {2, 3});
      const Tensor loss = plain.loss(ids, targets, {}, rows_at_once),
                   same = padded.loss(ids, targets, {}, rows_at_once);
      // Both sum 31 exponentials, in different orders.
      EXPECT_NEAR(item(loss), item(same), 1e-6);
      backward(loss);
      backward(same);
      for (size_t p = 0; p < plain.parameters().size(); ++p) {
        const std::vector<double> expected = to_doubles(plain.parameters()[p].tensor.grad());
        const std::vector<double> found = to_doubles(padded.parameters()[p].tensor.grad());
        for (size_t i = 0; i < found.size(); ++i)
          ASSERT_NEAR(found[i], i < expected.size() ? expected[i] : 0.0, i < expected.size() ? 1e-6 : 0.0)
              << p;
      }
    }
}

// Adds GPT-2's 124,439,808 parameters from the embeddings and twelve times the parameters of a block.
TEST(Gpt, CountsTheParametersOfGpt2) {
  const auto count = [](int64_t layers) {
    const Gpt model({.vocabulary = 503, .block_size = 1024, .layers = layers, .heads = 12, .width = 768}, 1);
    return count_parameters(model.parameters());
  };
  const int64_t block = count(2) - count(1);
  EXPECT_EQ(count(1) + 11 * block + (50257 - 503) * 768, 124439808);
}

double root_mean_square(const Tensor& tensor) {
  double squares = 0.0;
  for (const double value : to_doubles(tensor)) squares += value * value;
  return std::sqrt(squares / static_cast<double>(tensor.size()));
}

// The spread of n normal numbers is accurate to 1 / sqrt(2 n), and their mean to 1 / sqrt(n). The tolerance
// is five times that.
TEST(Gpt, StartsLikeGpt2) {
  Gpt::Options options = small_options();
  options.width = 96;
  for (const auto& [name, tensor] : Gpt(options, 3).parameters()) {
    if (tensor.shape().rank() == 1) {
      const double value = name.ends_with(".bias") ? 0.0 : 1.0;
      EXPECT_EQ(to_doubles(tensor), std::vector<double>(static_cast<size_t>(tensor.size()), value)) << name;
      continue;
    }
    const double std = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(4.0) : 0.02;
    const double one_sigma = std / std::sqrt(static_cast<double>(tensor.size()));
    EXPECT_NEAR(root_mean_square(tensor), std, 5 * one_sigma / std::sqrt(2.0)) << name;
    EXPECT_NEAR(item(mean(tensor.detach())), 0.0, 5 * one_sigma) << name;
  }
}

TEST(Gpt, TheStartIsAFunctionOfTheSeedAlone) {
  const auto start = [](uint64_t seed, int threads) {
    set_threads(threads);
    std::vector<NamedTensor> parameters = Gpt(small_options(), seed).parameters();
    set_threads(1);
    return parameters;
  };
  const std::vector<NamedTensor> first = start(3, 1), again = start(3, 3), other = start(4, 1);
  for (size_t p = 0; p < first.size(); ++p) {
    EXPECT_TRUE(has_same_bits(first[p].tensor, again[p].tensor)) << first[p].name;
    const bool is_drawn = first[p].tensor.shape().rank() == 2;
    EXPECT_EQ(has_same_bits(first[p].tensor, other[p].tensor), !is_drawn) << first[p].name;
    for (size_t q = 0; is_drawn && q < p; ++q)
      EXPECT_FALSE(has_same_bits(first[p].tensor.slice(0, 1), first[q].tensor.slice(0, 1)))
          << first[p].name << " and " << first[q].name << " start alike";
  }
}

// The numbers of a weight are drawn in the order of a matrix [outputs, inputs], whatever its order in memory.
TEST(Gpt, TheOrderOfAWeightDoesNotShowInItsStart) {
  Gpt::Options options = small_options();
  options.tie_weights = false;
  const std::vector<NamedTensor> parameters = Gpt(options, 3).parameters();
  int transposed = 0;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, tensor] = parameters[p];
    if (tensor.shape().rank() != 2) continue;
    transposed += is_in_out(name);
    EXPECT_EQ(is_in_out(name), name.find(".h.") != std::string::npos) << name;
    const Tensor out_in = is_in_out(name) ? transpose(tensor) : tensor.detach();
    const Tensor drawn = empty_like(out_in);
    const double std = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(4.0) : 0.02;
    fill_normal(drawn, 0.0, std, 3, static_cast<uint32_t>(p));
    EXPECT_TRUE(has_same_bits(out_in, drawn)) << name;
  }
  EXPECT_EQ(transposed, 2 * 4);
}

TEST(Gpt, SizesThatDoNotFitAreErrors) {
  Gpt::Options options = small_options();
  options.heads = 5;
  EXPECT_THROW(Gpt(options, 1), Error);
  options = small_options();
  options.layers = 0;
  EXPECT_THROW(Gpt(options, 1), Error);
  const Gpt model(small_options(), 1);
  EXPECT_THROW(model(random_ids({1, block_size + 1}, vocabulary, 1), {}), Error);
  EXPECT_THROW(model(random_ids({block_size}, vocabulary, 1), {}), Error);
}

class GptLogits : public testing::TestWithParam<DType> {
 protected:
  static Gpt::Options options(double dropout = 0.0) {
    Gpt::Options options = small_options();
    options.dropout = dropout;
    options.dtype = GetParam();
    return options;
  }
  inline static const Context training{.training = true, .seed = 9, .step = 4, .sample = 20};
};
INSTANTIATE_TEST_SUITE_P(Precisions, GptLogits, testing::Values(DType::f32, DType::f64),
                         [](const auto& precision) { return name(precision.param); });

TEST_P(GptLogits, AFutureTokenChangesNoPastLogit) {
  const Gpt model(options(0.2), 1);
  const NoGrad no_grad;
  for (const Context& context : {Context{}, training}) {
    const Tensor ids = random_ids({2, block_size}, vocabulary, 1);
    const Tensor before = model(ids, context);
    for (int64_t changed = 1; changed < block_size; ++changed) {
      const Tensor other = empty_like(ids);
      copy(ids, other);
      int32_t& id = other.data<int32_t>()[changed];
      id = (id + 1) % vocabulary;
      const Tensor after = model(other, context);
      const auto rows = [&](const Tensor& logits, int64_t begin, int64_t end) {
        return logits.reshape({-1, vocabulary}).slice(begin, end);
      };
      EXPECT_TRUE(has_same_bits(rows(before, 0, changed), rows(after, 0, changed))) << changed;
      EXPECT_FALSE(has_same_bits(rows(before, changed, block_size), rows(after, changed, block_size)));
      EXPECT_TRUE(has_same_bits(before.slice(1, 2), after.slice(1, 2))) << "the other sample has changed";
    }
  }
}

TEST_P(GptLogits, AShorterContextGivesTheSameLogits) {
  const Gpt model(options(), 1);
  const NoGrad no_grad;
  const Tensor ids = random_ids({1, block_size}, vocabulary, 1);
  const Tensor whole = model(ids, {}).reshape({block_size, vocabulary});
  for (int64_t time = 1; time < block_size; ++time) {
    const Tensor part = model(ids.reshape({block_size}).slice(0, time).reshape({1, time}), {});
    EXPECT_TRUE(has_same_bits(part.reshape({time, vocabulary}), whole.slice(0, time))) << time;
  }
}

/// Returns the last row of the logits of the first `end` ids, computed in one pass.
Tensor logits_after(const Gpt& model, const Tensor& ids, int64_t end) {
  return model(ids.slice(0, end).reshape({1, end}), {}).reshape({end, vocabulary}).slice(end - 1, end);
}

std::vector<int32_t> ids_between(const Tensor& ids, int64_t begin, int64_t end) {
  return {ids.data<int32_t>() + begin, ids.data<int32_t>() + end};
}

/// Reads three texts together, each cut at different positions. A new text replaces two of them.
void expect_same_logits_with_cache(const Gpt& model) {
  const NoGrad no_grad;
  KeyValueCache cache{.texts = 3, .capacity = block_size};
  std::array<Tensor, 3> texts;
  for (uint32_t i = 0; i < 3; ++i) texts[i] = random_ids({block_size}, vocabulary, i);
  std::array<int64_t, 3> past{};
  for (const auto& ends :
       {std::array<int64_t, 3>{5, 1, 2}, {6, 2, 9}, {7, 3, 10}, {7, 7, 11}, {12, 8, 12}, {12, 4, 3}}) {
    std::vector<NextTokens> parts;
    for (size_t i = 0; i < 3; ++i) {
      if (ends[i] < past[i]) {
        texts[i] = random_ids({block_size}, vocabulary, 7);
        past[i] = 0;
      }
      if (ends[i] > past[i])
        parts.push_back({static_cast<int64_t>(i), past[i], ids_between(texts[i], past[i], ends[i])});
    }
    const Tensor logits = model.next_logits(parts, cache);
    for (size_t row = 0; row < parts.size(); ++row) {
      const auto i = static_cast<size_t>(parts[row].text);
      const auto at = static_cast<int64_t>(row);
      EXPECT_TRUE(has_same_bits(logits.slice(at, at + 1), logits_after(model, texts[i], ends[i])))
          << "text " << i << " at " << ends[i];
    }
    past = ends;
  }
}

TEST_P(GptLogits, ACacheGivesTheSameLogitsHoweverTextsAreCutAndJoined) {
  for (const bool tied : {true, false})
    for (const int threads : {1, 3}) {
      Gpt::Options untied = options(0.2);
      untied.tie_weights = tied;
      set_threads(threads);
      expect_same_logits_with_cache(Gpt(untied, 1));
    }
  set_threads(1);
}

TEST(Gpt, ACacheGivesTheSameLogitsIn16Bits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Gpt model(small_options(), 1);
    ParameterSpace space(model.parameters());
    space.set_precision(dtype);
    expect_same_logits_with_cache(model);
  }
}

TEST(Gpt, ACacheHasNoRoomForMore) {
  const Gpt model(small_options(), 1);
  KeyValueCache cache{.texts = 2, .capacity = block_size};
  for (const NextTokens& part : {NextTokens{.text = 0, .past = block_size, .ids = {1}},
                                 {.text = 0, .past = 1},
                                 {.text = 2, .past = 0, .ids = {1}},
                                 {.text = 0, .past = -1, .ids = {1}}})
    EXPECT_THROW(model.next_logits(std::vector{part}, cache), Error);
}

TEST_P(GptLogits, ASampleDoesNotSeeItsBatch) {
  const Gpt model(options(0.2), 1);
  const NoGrad no_grad;
  const Tensor ids = random_ids({5, block_size - 1}, vocabulary, 1);
  for (const Context& context : {Context{}, training}) {
    const Tensor all = model(ids, context);
    for (uint32_t i = 0; i < 5; ++i) {
      Context alone = context;
      alone.sample += i;
      EXPECT_TRUE(has_same_bits(model(ids.slice(i, i + 1), alone), all.slice(i, i + 1))) << i;
    }
  }
}

TEST_P(GptLogits, DropoutIsForTrainingOnly) {
  const Gpt plain(options(), 1), dropping(options(0.2), 1);
  const NoGrad no_grad;
  const Tensor ids = random_ids({2, block_size}, vocabulary, 1);
  Context later = training;
  ++later.step;
  EXPECT_TRUE(has_same_bits(plain(ids, {}), dropping(ids, {})));
  EXPECT_TRUE(has_same_bits(plain(ids, {}), plain(ids, training)));
  EXPECT_FALSE(has_same_bits(plain(ids, {}), dropping(ids, training)));
  EXPECT_TRUE(has_same_bits(dropping(ids, training), dropping(ids, training)));
  EXPECT_FALSE(has_same_bits(dropping(ids, training), dropping(ids, later)));
}

TEST(Gpt, FloatingPointOperationsAreSixAWeightAndTheAttention) {
  const Gpt model(small_options(), 1);
  const double weights = 2 * 12 * width * width + vocabulary * width;
  EXPECT_EQ(model.flops_per_token(10), 6 * weights + 12 * 2 * width * 10);
}

}  // namespace
}  // namespace lockstep::gpt_test
