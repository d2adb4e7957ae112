// SPDX-License-Identifier: Apache-2.0
// Checks all operations from one table. Compares gradients with central differences, single with double
// precision, and one thread with several.
#include <algorithm>
#include <fstream>
#include <regex>
#include <set>

#include "support/op_cases.h"
#include "support/user_error.h"

namespace lockstep::ops_test {
namespace {

/// Returns the operation's result and the gradients of all inputs. The inputs hold numbers of the dtype
/// `numbers`.
Tensors run(const OpCase& op, const std::vector<Shape>& shapes, DType dtype, int threads, DType numbers) {
  set_threads(threads);
  const Inputs inputs = make_inputs(op, shapes, dtype, numbers);
  Tensors results{op.function(inputs.tensors)};
  backward(weighted_sum(results[0], numbers));
  for (const Tensor& input : inputs.tensors) results.push_back(scale(input.grad(), 1.0));
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

/// Returns half the distance from 1 to the next number.
double unit_roundoff(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-8;
  return dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

// Each addition or function in a chain rounds by at most a unit roundoff (2^-24 in fp32) of a number. That
// number is at most the largest one involved, or the inputs, which are below 1.05. Functions count as four
// roundings. The steps before a chain of n (the weights of the sum) and after it pass its error on. In 16
// bits some of these steps round to 16 bits. Below its smallest normal number f16 rounds by 2^-25.
TEST_P(OpTest, LowerPrecisionsAreDoublePrecisionRounded) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensors exact = run(GetParam(), GetParam().small, DType::f64, 1, dtype);
    const Tensors rounded = run(GetParam(), GetParam().small, dtype, 1, dtype);
    for (size_t t = 0; t < exact.size(); ++t) {
      const std::vector<double> expected = to_doubles(exact[t]), actual = to_doubles(rounded[t]);
      double largest = 1.05;
      for (const double value : expected) largest = std::max(largest, std::fabs(value));
      const double each = unit_roundoff(dtype) * largest + (dtype == DType::f16 ? 0x1p-25 : 0.0);
      const double bound = static_cast<double>(GetParam().additions + 1) * each;
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(actual[i], expected[i], bound)
            << dtype << " " << (t == 0 ? "result" : "gradient") << ", element " << i;
    }
  }
}

TEST_P(OpTest, ResultsAndGradientsHaveTheDtypesOfWhatTheyBelongTo) {
  const OpCase& op = GetParam();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensors results = run(op, op.small, dtype, 1, dtype);
    const bool is_fp32 = op.name == "convert" || op.name.find("cross_entropy") != std::string::npos;
    EXPECT_EQ(results[0].dtype(), is_fp32 ? DType::f32 : dtype);
    for (size_t i = 0; i + 1 < results.size(); ++i)
      EXPECT_EQ(results[i + 1].dtype(), op.parameters.contains(i) ? DType::f32 : dtype) << "input " << i;
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

// Accumulation must equal the existing gradient plus the finished one, rounded once.
TEST_P(OpTest, AccumulatingAddsTheFinishedGradient) {
  if (GetParam().name.ends_with("_same")) return;  // a leaf that is used twice accumulates twice
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
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const auto& shapes : {GetParam().small, GetParam().large}) {
      const Tensors one = run(GetParam(), shapes, dtype, 1, dtype);
      for (const int threads : {2, 3}) {
        const Tensors several = run(GetParam(), shapes, dtype, threads, dtype);
        for (size_t t = 0; t < one.size(); ++t)
          EXPECT_TRUE(has_same_bits(one[t], several[t]))
              << dtype << ", " << threads << " threads, tensor " << t;
      }
    }
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
                  {"matmul: a is [2, 3, 4], b is [3, 4, 5]; the leading dimensions"});
  expect_contains(error_of([&] { matmul(zeros({3}), x); }), {"matmul: a is [3], b is [2, 3]"});
  expect_contains(error_of([&] {
                    mean_squared_error(x, zeros({2, 1}));
                  }),
                  {"mean_squared_error: x is [2, 3], y is [2, 1]"});
  expect_contains(error_of([&] {
                    causal_attention(cube, {3, 2});
                  }),
                  {"attention of 3 query heads and 2 key heads: the key heads must divide the query heads"});
  expect_contains(error_of([&] { causal_attention(cube, 2); }), {"[2, 3, 4] for 2 query heads", "6 * size"});
  expect_contains(error_of([&] { softmax(x, 2); }),
                  {"softmax: x is [2, 3] and has no dimension 2; it must be in [-2, 1]"});
  expect_contains(error_of([&] { sum(x, -3); }), {"sum: x is [2, 3] and has no dimension -3"});
  expect_contains(error_of([&] { mean(zeros({}), 0); }), {"mean: x is [] and has no dimension 0"});
}

// Nothing is computed for an input without a gradient, such as an attention mask.
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

TEST(Convert, TakesAGradientBackAndIsXWhereNothingChanges) {
  const Tensor x = from_values<float>({1.0f + 0x1p-8f, 3.0f, -2.0f}, {3}).set_requires_grad();
  EXPECT_EQ(convert(x, DType::f32).id(), x.id());
  const Tensor rounded = convert(x, DType::bf16);
  EXPECT_EQ(to_doubles(rounded), (std::vector<double>{1, 3, -2}));
  const Tensor weights = from_values<float>({1.0f + 0x1p-10f, 5.0f, 7.0f}, {3});
  backward(sum(multiply(convert(rounded, DType::f32), weights)));
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(to_doubles(x.grad()), (std::vector<double>{1, 5, 7}));
  EXPECT_EQ(to_doubles(convert(from_values<int32_t>({-7, 300}, {2}), DType::f16)),
            (std::vector<double>{-7, 300}));
  expect_contains(error_of([&] { convert(x, DType::i32); }), {"cannot convert f32 to i32"});
}

TEST(CachedAttention, ContinuesATextWithGroupsOfHeadsPackedAndApart) {
  const AttentionHeads heads(4, 2);
  constexpr int64_t size = 3, tokens = 5;
  const Tensor q = uniform_tensor({1, tokens, 12}, 1, DType::f32);
  const Tensor k = uniform_tensor({1, tokens, 6}, 2, DType::f32),
               v = uniform_tensor({1, tokens, 6}, 3, DType::f32);
  const Tensor expected = causal_attention(q, k, v, heads).reshape({tokens, 12});
  const auto rows = [](const Tensor& x) { return x.reshape({tokens, x.shape()[2]}); };
  Tensor packed = empty({tokens, 24}, DType::f32);
  for (int64_t token = 0; token < tokens; ++token) {
    float* row = packed.data<float>() + token * 24;
    for (const Tensor& part : {q, k, v}) {
      const int64_t columns = part.shape()[2];
      row = std::copy_n(part.data<float>() + token * columns, columns, row);
    }
  }
  EXPECT_TRUE(has_same_bits(causal_attention(packed.reshape({1, tokens, 24}), heads).reshape({tokens, 12}),
                            expected));
  const AttentionCache of_packed = make_kept_attention(1, tokens, heads, size, DType::f32);
  const AttentionCache of_apart = make_kept_attention(1, tokens, heads, size, DType::f32);
  for (int32_t token = 0; token < tokens; ++token) {
    const Tensor place = from_values<int32_t>({0, token}, {1, 2});
    const auto at = [&](const Tensor& x) { return x.slice(token, token + 1); };
    EXPECT_TRUE(has_same_bits(cached_attention(at(packed), heads, of_packed, place), at(expected)));
    EXPECT_TRUE(has_same_bits(cached_attention(at(rows(q)), at(rows(k)), at(rows(v)), heads, of_apart, place),
                              at(expected)));
  }
}

TEST(OpErrors, NameTheDtypeThatIsMissing) {
  const Tensor x = zeros({2, 3}, DType::bf16), weight = zeros({4, 3}), half = zeros({2, 3}, DType::f16);
  expect_contains(error_of([&] { linear(x, weight); }), {"bf16"});
  expect_contains(error_of([&] { add(x, half); }), {"add: a is [2, 3] bf16, b is [2, 3] f16"});
  expect_contains(error_of([&] { cross_entropy(x, half); }), {"targets are f16, not i32"});
}

/// Returns the names of the functions that ops.h declares.
std::set<std::string> declared_operations() {
  std::ifstream header(LOCKSTEP_SOURCE_DIR "/src/tensor/ops.h");
  const std::regex declaration("^(?:Tensor|SumAndNorm|std::vector<Tensor>) (\\w+)\\(.*");
  std::set<std::string> declared;
  std::smatch match;
  for (std::string line; std::getline(header, line);)
    if (std::regex_match(line, match, declaration)) declared.insert(match[1]);
  return declared;
}

/// Returns the error of an operation whose inputs are all `x`, or an empty text.
std::string error_with(const OpCase& op, const Tensor& x) {
  try {
    op.function(Tensors(op.small.size(), x));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Whichever layer notices the mistake, the message begins with the function that the user called.
TEST(OpErrors, BeginWithTheNameOfTheOperation) {
  std::set<std::string> names = declared_operations();
  names.insert("reshape");
  const auto is_named = [&](const std::string& message) {
    const size_t colon = message.find(':');
    return colon != std::string::npos && names.contains(message.substr(0, colon));
  };
  int refusals = 0;
  for (const OpCase& op : all_cases())
    for (const Tensor& x : {full({2, 4, 18}, 1.0, DType::i32), zeros({3}), zeros({2, 2, 2, 2})}) {
      const std::string message = error_with(op, x);
      EXPECT_TRUE(message.empty() || is_named(message)) << op.name << ": " << message;
      refusals += message.empty() ? 0 : 1;
    }
  EXPECT_GE(refusals, 80);
  for (const auto& cases : {broadcast_cases(), function_cases(), part_cases(), dimension_cases()})
    for (const OpCase& op : cases) {
      if (op.name == "log" || op.name == "where" || op.name == "where_number" || op.name == "chunk") continue;
      EXPECT_TRUE(is_named(error_with(op, {}))) << op.name << ": " << error_with(op, {});
    }
}

TEST(OpErrors, OfAGradientNameItsOperation) {
  const Tensor x = uniform_tensor({2, 3}, 1, DType::f32).set_requires_grad();
  const Tensor y = record("thrice", scale(x.detach(), 3.0), {x},
                          [](const Tensor& dy) -> Gradients { return {scale(dy.reshape({7}), 3.0)}; });
  expect_contains(error_of([&] { backward(sum(y)); }), {"the gradient of thrice: x is [2, 3], which"});
  expect_contains(error_of([&] { scale(Tensor(), 2.0); }), {"scale: an empty tensor has no dtype"});
}

TEST(OpErrors, OfJoinedAndCutDimensionsNameTheShapes) {
  const Tensor x = zeros({2, 3});
  expect_contains(error_of([&] {
                    cat({x, zeros({2, 4})});
                  }),
                  {"cat: tensor 0 is [2, 3], tensor 1 is [2, 4]; only dimension 0 may differ"});
  expect_contains(error_of([&] { cat({}); }), {"cat: there is no tensor to join"});
  expect_contains(error_of([&] {
                    stack({x, zeros({3, 2})});
                  }),
                  {"stack: tensor 0 is [2, 3], tensor 1 is [3, 2]"});
  expect_contains(error_of([&] {
                    stack({zeros({1, 1, 1, 1})});
                  }),
                  {"stack: a shape has at most 4 dimensions"});
  expect_contains(error_of([&] { slice(x, 1, 1, 4); }),
                  {"slice: x is [2, 3]; dimension 1 has no elements [1, 4)"});
  expect_contains(error_of([&] { chunk(x, 0); }), {"chunk: 0 parts are asked for"});
  expect_contains(error_of([&] { max(zeros({2, 0}), 1); }), {"max: x is [2, 0]; dimension 1 has no element"});
  expect_contains(error_of([&] { max(zeros({0})); }), {"max: x is [0] and has no element"});
  expect_contains(error_of([&] { equal(full({2}, 1.0, DType::i32), 0.5); }),
                  {"equal: the tensor is i32, which cannot hold 0.5"});
  expect_contains(error_of([&] { add(1.0, 2.0); }), {"add: one operand must be a tensor"});
}

TEST(Chunks, AreAsManyAsPyTorchMakes) {
  const Tensor x = zeros({5, 2});
  const auto extents = [](const Tensors& parts) {
    std::vector<int64_t> found;
    for (const Tensor& part : parts) found.push_back(part.shape()[0]);
    return found;
  };
  EXPECT_EQ(extents(chunk(x, 2)), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(extents(chunk(x, 4)), (std::vector<int64_t>{2, 2, 1}));
  EXPECT_EQ(extents(chunk(x, 9)), (std::vector<int64_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(extents(chunk(zeros({0, 2}), 3)), (std::vector<int64_t>{0}));
}

TEST(Masks, TakeIdsAndSelectAmongFloats) {
  const Tensor ids = from_values<int32_t>({3, 0, 3, 7}, {4}), x = from_values<float>({1, 2, 3, 4}, {4});
  const Tensor mask = equal(ids, 3.0);
  EXPECT_EQ(mask.dtype(), DType::i32);
  EXPECT_EQ(to_doubles(where(mask, x, -INFINITY)), (std::vector<double>{1, -INFINITY, 3, -INFINITY}));
  EXPECT_EQ(to_doubles(maximum(ids, 2.0)), (std::vector<double>{3, 2, 3, 7}));
  EXPECT_EQ(to_doubles(cat({ids, ids.slice(0, 1)})), (std::vector<double>{3, 0, 3, 7, 3}));
}

TEST(OpTable, HoldsEveryOperation) {
  std::set<std::string> declared = declared_operations();
  // These have no gradient. function_golden_test.cpp checks comparisons and places. tests/kernels compares
  // cached_attention with causal_attention and computes rotary_table, and loss_test.cpp compares the others
  // with linear_cross_entropy.
  for (const char* name : {"cached_attention", "linear_cross_entropies", "rotary_table", "less", "less_equal",
                           "greater", "greater_equal", "equal", "not_equal", "argmax", "argmin"})
    declared.erase(name);
  EXPECT_GE(declared.size(), 40U);
  for (const std::string& name : declared)
    EXPECT_TRUE(std::ranges::any_of(
        all_cases(), [&](const OpCase& op) { return op.name == name || op.name.starts_with(name + "_"); }))
        << name << " is in ops.h but not in this table";
}

}  // namespace
}  // namespace lockstep::ops_test
