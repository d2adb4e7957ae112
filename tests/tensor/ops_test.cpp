// SPDX-License-Identifier: Apache-2.0
// One table of all operations: gradients against central differences, single against double precision, and
// one thread against several.
#include "tensor/ops.h"

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>

#include "support/gradient_check.h"

namespace lockstep {
namespace {

using Tensors = std::vector<Tensor>;

struct OpCase {
  std::string name;          ///< as in ops.h, then "_" and a variant
  std::vector<Shape> small;  ///< of the inputs, with odd extents
  std::vector<Shape> large;  ///< enough for several chunks of every kernel
  int64_t additions = 1;     ///< in the longest chain that makes an element or a gradient, small shapes
  std::function<Tensor(const Tensors&)> function;

  friend std::ostream& operator<<(std::ostream& out, const OpCase& op) { return out << op.name; }
};

constexpr RandomKey key{.seed = 5, .step = 7, .sample = 11, .site = 2};

/// Targets for logits [..., classes]; every fifth is ignored.
Tensor targets_for(const Tensor& logits) {
  Tensor targets = random_ids({logits.shape().rows()}, logits.shape()[-1], 50);
  for (int64_t i = 2; i < targets.size(); i += 5) targets.data<int32_t>()[i] = -1;
  return targets;
}

/// Three of four ids fall on a few rows, so that rows are used several times and some never.
Tensor ids_for(const Tensor& table) {
  const int64_t rows = table.shape()[0];
  Tensor ids = random_ids({3, rows}, rows, 51);
  for (int64_t i = 0; i < ids.size(); ++i)
    if (i % 4 != 0) ids.data<int32_t>()[i] %= 3;
  return ids;
}

std::vector<OpCase> elementwise_cases() {
  const Shape small{3, 1, 7}, large{3, 70, 191};
  return {
      {"add", {small, small}, {large, large}, 2, [](const Tensors& in) { return add(in[0], in[1]); }},
      {"add_same", {small}, {large}, 2, [](const Tensors& in) { return add(in[0], in[0]); }},
      {"subtract",
       {small, small},
       {large, large},
       2,
       [](const Tensors& in) { return subtract(in[0], in[1]); }},
      {"multiply",
       {small, small},
       {large, large},
       2,
       [](const Tensors& in) { return multiply(in[0], in[1]); }},
      {"multiply_same", {small}, {large}, 2, [](const Tensors& in) { return multiply(in[0], in[0]); }},
      {"scale", {small}, {large}, 1, [](const Tensors& in) { return scale(in[0], -1.7); }},
      {"relu", {small}, {large}, 1, [](const Tensors& in) { return relu(in[0]); }},
      {"tanh", {small}, {large}, 4, [](const Tensors& in) { return tanh(in[0]); }},
      {"gelu_tanh", {small}, {large}, 8, [](const Tensors& in) { return gelu(in[0], Gelu::tanh); }},
      {"gelu_erf", {small}, {large}, 8, [](const Tensors& in) { return gelu(in[0], Gelu::erf); }},
      {"dropout", {small}, {large}, 1, [](const Tensors& in) { return dropout(in[0], 0.3, key); }},
      {"sum", {small}, {large}, 21, [](const Tensors& in) { return sum(in[0]); }},
      {"mean", {small}, {large}, 21, [](const Tensors& in) { return mean(in[0]); }},
      {"mean_squared_error",
       {small, small},
       {large, large},
       21,
       [](const Tensors& in) { return mean_squared_error(in[0], in[1]); }},
      {"reshape",
       {small},
       {large},
       1,
       [](const Tensors& in) {
         return in[0].reshape({-1, 1});
       }},
  };
}

std::vector<OpCase> product_cases() {
  const Shape x{2, 3, 5}, weight{7, 5}, bias{7};
  const Shape large_x{3, 61, 129}, large_weight{200, 129}, large_bias{200};
  const auto with_gelu = [](Gelu form) {
    return [form](const Tensors& in) {
      return linear_gelu(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), form);
    };
  };
  return {
      {"linear",
       {x, weight, bias},
       {large_x, large_weight, large_bias},
       7,
       [](const Tensors& in) { return linear(in[0], in[1], in[2]); }},
      {"linear_no_bias",
       {x, weight},
       {large_x, large_weight},
       7,
       [](const Tensors& in) { return linear(in[0], in[1]); }},
      {"linear_one_row",
       {{5}, weight, bias},
       {{129}, large_weight, large_bias},
       7,
       [](const Tensors& in) { return linear(in[0], in[1], in[2]); }},
      {"linear_gelu_tanh", {x, weight, bias}, {large_x, large_weight, large_bias}, 16, with_gelu(Gelu::tanh)},
      {"linear_gelu_erf", {x, weight, bias}, {large_x, large_weight, large_bias}, 16, with_gelu(Gelu::erf)},
      {"linear_gelu_no_bias", {x, weight}, {large_x, large_weight}, 16, with_gelu(Gelu::tanh)},
      {"matmul",
       {{4, 5}, {5, 3}},
       {{183, 129}, {129, 200}},
       5,
       [](const Tensors& in) { return matmul(in[0], in[1]); }},
  };
}

std::vector<OpCase> model_cases() {
  const auto attention = [](double dropout) {
    return [dropout](const Tensors& in) {
      return causal_attention(in[0], in[0].shape()[2] == 18 ? 2 : 4, dropout, key);
    };
  };
  return {
      {"layer_norm",
       {{2, 3, 9}, {9}, {9}},
       {{7, 57, 97}, {97}, {97}},
       18,
       [](const Tensors& in) { return layer_norm(in[0], in[1], in[2]); }},
      {"layer_norm_no_bias",
       {{4, 9}, {9}},
       {{399, 97}, {97}},
       18,
       [](const Tensors& in) { return layer_norm(in[0], in[1], {}); }},
      {"embedding",
       {{6, 5}},
       {{700, 130}},
       14,
       [](const Tensors& in) { return embedding(ids_for(in[0]), in[0]); }},
      {"add_positions",
       {{3, 4, 5}, {6, 5}},
       {{9, 70, 65}, {80, 65}},
       3,
       [](const Tensors& in) { return add_positions(in[0], in[1]); }},
      {"causal_attention", {{2, 7, 18}}, {{3, 70, 204}}, 24, attention(0.0)},
      {"causal_attention_dropout", {{2, 7, 18}}, {{3, 70, 204}}, 24, attention(0.3)},
      {"cross_entropy",
       {{2, 4, 9}},
       {{5, 60, 131}},
       16,
       [](const Tensors& in) { return cross_entropy(in[0], targets_for(in[0])); }},
  };
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> all = elementwise_cases();
  for (const auto& more : {product_cases(), model_cases()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Away from zero, where relu has no slope.
Tensors make_inputs(const std::vector<Shape>& shapes, DType dtype) {
  Tensors inputs;
  for (const Shape& shape : shapes) {
    Tensor x = uniform_tensor(shape, static_cast<uint32_t>(inputs.size()), DType::f32);
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] += std::copysign(0.05f, x.data<float>()[i]);
    inputs.push_back(convert(x, dtype).set_requires_grad());
  }
  return inputs;
}

/// A scalar that weighs every element of y differently, so that no two gradients can be mixed up.
Tensor weighted_sum(const Tensor& y) { return sum(multiply(y, uniform_tensor(y.shape(), 99, y.dtype()))); }

/// The operation's result and the gradients of all inputs.
Tensors run(const OpCase& op, const std::vector<Shape>& shapes, DType dtype, int threads) {
  set_threads(threads);
  const Tensors inputs = make_inputs(shapes, dtype);
  Tensors results{op.function(inputs)};
  backward(weighted_sum(results[0]));
  for (const Tensor& input : inputs) results.push_back(input.grad());
  set_threads(1);
  return results;
}

class OpTest : public testing::TestWithParam<OpCase> {};
INSTANTIATE_TEST_SUITE_P(All, OpTest, testing::ValuesIn(all_cases()),
                         [](const auto& op) { return op.param.name; });

TEST_P(OpTest, GradientsAreTheSlopes) {
  const Tensors inputs = make_inputs(GetParam().small, DType::f64);
  std::vector<NamedTensor> leaves;
  for (const Tensor& input : inputs) leaves.push_back({concat("input ", leaves.size()), input});
  expect_gradients(leaves, [&] { return weighted_sum(GetParam().function(inputs)); });
}

// Each addition or function on the way to an element rounds by at most 2^-24 of a number that is no larger
// than the largest around, or than the inputs, which are below 1.05; functions count as four. What a chain
// of n has gathered at its end, the steps before it (the weights of the sum) and after it pass on.
TEST_P(OpTest, SinglePrecisionIsDoublePrecisionRounded) {
  const Tensors exact = run(GetParam(), GetParam().small, DType::f64, 1);
  const Tensors single = run(GetParam(), GetParam().small, DType::f32, 1);
  for (size_t t = 0; t < exact.size(); ++t) {
    const std::vector<double> expected = to_doubles(exact[t]), actual = to_doubles(single[t]);
    double largest = 1.05;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    const double bound = static_cast<double>(GetParam().additions + 1) * 0x1p-24 * largest;
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], bound) << (t == 0 ? "result" : "gradient") << ", element " << i;
  }
}

TEST_P(OpTest, ThreadsDoNotShow) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& shapes : {GetParam().small, GetParam().large}) {
      const Tensors one = run(GetParam(), shapes, dtype, 1);
      for (const int threads : {2, 3}) {
        const Tensors several = run(GetParam(), shapes, dtype, threads);
        for (size_t t = 0; t < one.size(); ++t)
          EXPECT_TRUE(has_same_bits(one[t], several[t]))
              << dtype << ", " << threads << " threads, tensor " << t;
      }
    }
}

TEST(OpTable, HoldsEveryOperation) {
  std::ifstream header(LOCKSTEP_SOURCE_DIR "/src/tensor/ops.h");
  const std::regex declaration("^Tensor (\\w+)\\(.*");
  std::set<std::string> declared;
  std::smatch match;
  for (std::string line; std::getline(header, line);)
    if (std::regex_match(line, match, declaration)) declared.insert(match[1]);
  EXPECT_GE(declared.size(), 19U);
  for (const std::string& name : declared)
    EXPECT_TRUE(std::ranges::any_of(
        all_cases(), [&](const OpCase& op) { return op.name == name || op.name.starts_with(name + "_"); }))
        << name << " is in ops.h, and not in this table";
}

}  // namespace
}  // namespace lockstep
