// SPDX-License-Identifier: Apache-2.0
// One table of all operations: gradients against central differences, single against double precision, and
// one thread against several.
#include <algorithm>
#include <fstream>
#include <regex>
#include <set>

#include "support/op_cases.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

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

TEST(Linear, TheOrderOfItsWeightDoesNotShowInTheBits) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensors in = make_inputs({{3, 61, 300}, {200, 300}, {200}}, dtype);
    const Tensor transposed = transpose(in[1].detach()).set_requires_grad();
    const Tensor expected = linear(in[0], in[1], in[2]);
    backward(weighted_sum(expected));
    const Tensors gradients{in[0].grad(), in[1].grad(), in[2].grad()};
    for (const Tensor& x : {in[0], in[2]}) leaf_gradient(x).buffer = {};
    const Tensor y = linear(in[0], transposed, in[2], {}, WeightOrder::in_out);
    EXPECT_TRUE(has_same_bits(y, expected));
    backward(weighted_sum(y));
    EXPECT_TRUE(has_same_bits(in[0].grad(), gradients[0]));
    EXPECT_TRUE(has_same_bits(transpose(transposed.grad()), gradients[1]));
    EXPECT_TRUE(has_same_bits(in[2].grad(), gradients[2]));
  }
}

// However an operation adds to a gradient that is there, it is that plus the finished one, rounded once.
TEST_P(OpTest, AccumulatingAddsTheFinishedGradient) {
  if (GetParam().name.ends_with("_same")) return;  // a leaf that is used twice is added to twice
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensors inputs = make_inputs(GetParam().large, dtype);
    backward(weighted_sum(GetParam().function(inputs)));
    Tensors expected;
    for (const Tensor& input : inputs) {
      LeafGradient& gradient = leaf_gradient(input);
      const Tensor before = uniform_tensor(input.shape(), 77, dtype);
      expected.push_back(add(before, std::exchange(gradient.buffer, before)));
      gradient.accumulate = true;
    }
    backward(weighted_sum(GetParam().function(inputs)));
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_TRUE(has_same_bits(inputs[i].grad(), expected[i])) << dtype << ", input " << i;
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

/// The message of the Error that an operation throws.
template <class Operation>
std::string error_of(Operation operation) {
  try {
    operation();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(OpErrors, NameTheOperationAndBothShapes) {
  const Tensor x = zeros({2, 3}), y = zeros({4, 3}), cube = zeros({2, 3, 4}),
               wide = zeros({2, 3}, DType::f64);
  expect_contains(
      error_of([&] { add(x, y); }),
      {"add: a is [2, 3], b is [4, 3]; dimension -2 is 2 and 4, which must be equal, or one of them 1"});
  expect_contains(error_of([&] { divide(cube, x); }), {"divide: a is [2, 3, 4], b is [2, 3]; dimension -1"});
  expect_contains(error_of([&] { multiply(x, wide); }), {"multiply: a is [2, 3] f32, b is [2, 3] f64"});
  expect_contains(error_of([&] { matmul(x, y); }),
                  {"matmul: a is [2, 3], b is [4, 3]; they must be [..., m, k] and [..., k, n]"});
  expect_contains(error_of([&] {
                    matmul(cube, zeros({3, 4, 5}));
                  }),
                  {"matmul: a is [2, 3, 4], b is [3, 4, 5]; before the matrices"});
  expect_contains(error_of([&] { matmul(zeros({3}), x); }), {"matmul: a is [3], b is [2, 3]"});
  expect_contains(error_of([&] {
                    mean_squared_error(x, zeros({2, 1}));
                  }),
                  {"mean_squared_error: x is [2, 3], y is [2, 1]"});
  expect_contains(error_of([&] { softmax(x, 2); }),
                  {"softmax: x is [2, 3] and has no dimension 2; it must be in [-2, 1]"});
  expect_contains(error_of([&] { sum(x, -3); }), {"sum: x is [2, 3] and has no dimension -3"});
  expect_contains(error_of([&] { mean(zeros({}), 0); }), {"mean: x is [] and has no dimension 0"});
}

// Nothing is computed for an input that wants no gradient: the mask of an attention, say.
TEST(Broadcasting, AConstantHasNoGradientAndAParameterHasItsOwnShape) {
  const Tensor x = uniform_tensor({4, 2, 3}, 1, DType::f32).set_requires_grad(), mask = zeros({2, 3});
  const Tensor bias = zeros({3}).set_requires_grad();
  backward(sum(add(add(x, mask), bias)));
  EXPECT_EQ(to_doubles(bias.grad()), (std::vector<double>{8, 8, 8}));
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_FALSE(mask.grad());
}

TEST(Matmul, OneMatrixForManyRowsHasTheBitsOfOneProduct) {
  const Tensor x = uniform_tensor({3, 5, 70}, 1, DType::f32), weight = uniform_tensor({70, 9}, 2, DType::f32);
  EXPECT_TRUE(has_same_bits(matmul(x, weight).reshape({15, 9}), matmul(x.reshape({15, 70}), weight)));
}

TEST(OpTable, HoldsEveryOperation) {
  std::ifstream header(LOCKSTEP_SOURCE_DIR "/src/tensor/ops.h");
  const std::regex declaration("^Tensor (\\w+)\\(.*");
  std::set<std::string> declared;
  std::smatch match;
  for (std::string line; std::getline(header, line);)
    if (std::regex_match(line, match, declaration)) declared.insert(match[1]);
  // It has no gradient; tests/nn compares it with causal_attention.
  declared.erase("continue_causal_attention");
  EXPECT_GE(declared.size(), 24U);
  for (const std::string& name : declared)
    EXPECT_TRUE(std::ranges::any_of(
        all_cases(), [&](const OpCase& op) { return op.name == name || op.name.starts_with(name + "_"); }))
        << name << " is in ops.h, and not in this table";
}

}  // namespace
}  // namespace lockstep
