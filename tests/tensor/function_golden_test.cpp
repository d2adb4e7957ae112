// SPDX-License-Identifier: Apache-2.0
// Compares functions, masks, extremes, and cutting and joining with PyTorch, also for numbers that are not
// finite and for equal ones.
#include <functional>

#include "lockstep/tensor/operators.h"
#include "support/golden.h"

namespace lockstep::golden_test {
namespace {

using Tensors = std::vector<Tensor>;

struct NamedFunction {
  const char* name;
  std::function<Tensor(const Tensors&)> function;
};

Tensors operands_of(const Golden& golden, const std::string& name, DType dtype) {
  Tensors operands;
  for (const char* input : {".in_x", ".in_y"})
    if (golden.contains(name + input))
      operands.push_back(golden.tensor(name + input, dtype).set_requires_grad());
  return operands;
}

class FunctionGolden : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, FunctionGolden, testing::Values(DType::f32, DType::f64),
                         [](const auto& precision) { return name(precision.param); });

const std::vector<NamedFunction> functions = {
    {"sigmoid", [](const Tensors& in) { return sigmoid(in[0]); }},
    {"silu", [](const Tensors& in) { return silu(in[0]); }},
    {"sqrt", [](const Tensors& in) { return sqrt(in[0]); }},
    {"rsqrt", [](const Tensors& in) { return rsqrt(in[0]); }},
    {"pow_square", [](const Tensors& in) { return pow(in[0], 2.0); }},
    {"pow_number", [](const Tensors& in) { return pow(in[0], 3.5); }},
    {"pow_of_number", [](const Tensors& in) { return pow(2.5, in[0]); }},
    {"pow", [](const Tensors& in) { return pow(in[0], in[1]); }},
    {"add_number", [](const Tensors& in) { return in[0] + 1.5; }},
    {"subtract_number", [](const Tensors& in) { return in[0] - 1.5; }},
    {"number_minus", [](const Tensors& in) { return 2 - in[0]; }},
    {"divide_by_number", [](const Tensors& in) { return in[0] / 3; }},
    {"divide_number", [](const Tensors& in) { return 2 / in[0]; }},
    {"minus", [](const Tensors& in) { return -in[0]; }},
    {"maximum", [](const Tensors& in) { return maximum(in[0], in[1]); }},
    {"minimum", [](const Tensors& in) { return minimum(in[0], in[1]); }},
    {"clamp", [](const Tensors& in) { return clamp(in[0], 0.75, 1.25); }},
    {"where", [](const Tensors& in) { return where(in[0] < 1, in[0], in[1]); }},
    {"masked", [](const Tensors& in) { return in[0] * (in[0] > 1); }},
    {"max", [](const Tensors& in) { return max(in[0]); }},
    {"min", [](const Tensors& in) { return min(in[0]); }},
    {"max_first", [](const Tensors& in) { return max(in[0], 0); }},
    {"min_kept", [](const Tensors& in) { return min(in[0], -2, true); }},
    {"max_last", [](const Tensors& in) { return max(in[0], -1); }},
    {"cat", [](const Tensors& in) { return cat(in, -1); }},
    {"stack", [](const Tensors& in) { return stack(in, 1); }},
    {"chunk",
     [](const Tensors& in) {
       const Tensors parts = chunk(in[0], 2, -1);
       return slice(parts[0], -1, 0, parts[1].shape()[-1]) * parts[1];
     }},
    {"slice", [](const Tensors& in) { return slice(in[0], 1, -3, -1); }},
};

TEST_P(FunctionGolden, ResultsShapesAndGradients) {
  const Golden golden("function_ops");
  for (const auto& [name, function] : functions) {
    const std::string op = name;
    const Tensors operands = operands_of(golden, op, GetParam());
    const Tensor y = function(operands);
    EXPECT_EQ(y.shape(), golden.stored(op + ".y").shape()) << op;
    golden.expect_near(op + ".y", y, GetParam());
    backward(y, golden.tensor(op + ".dy", GetParam()));
    for (size_t i = 0; i < operands.size(); ++i)
      golden.expect_near(op + ".din_" + "xy"[i], operands[i].grad(), GetParam());
  }
}

/// Expects equal values, or NaN in both. The finite values are chosen so that no rounding differs.
void expect_equal(const std::string& what, const Tensor& actual, const Tensor& wanted) {
  EXPECT_EQ(actual.shape(), wanted.shape()) << what;
  const std::vector<double> values = to_doubles(actual), truth = to_doubles(wanted);
  for (size_t i = 0; i < truth.size(); ++i)
    EXPECT_TRUE(values[i] == truth[i] || (std::isnan(values[i]) && std::isnan(truth[i])))
        << what << "[" << i << "] is " << values[i] << ", PyTorch has " << truth[i];
}

const std::vector<NamedFunction> edges = {
    {"sigmoid", [](const Tensors& in) { return sigmoid(in[0]); }},
    {"silu", [](const Tensors& in) { return silu(in[0]); }},
    {"sqrt", [](const Tensors& in) { return sqrt(in[0]); }},
    {"rsqrt", [](const Tensors& in) { return rsqrt(in[0]); }},
    {"pow", [](const Tensors& in) { return pow(in[0], in[1]); }},
    {"pow_zero", [](const Tensors& in) { return pow(in[0], 0.0); }},
    {"pow_square", [](const Tensors& in) { return pow(in[0], 2.0); }},
    {"maximum", [](const Tensors& in) { return maximum(in[0], in[1]); }},
    {"minimum", [](const Tensors& in) { return minimum(in[0], in[1]); }},
    {"clamp", [](const Tensors& in) { return clamp(in[0], -1, 1); }},
    {"clamp_low", [](const Tensors& in) { return clamp(in[0], -1, INFINITY); }},
    {"where", [](const Tensors& in) { return where(in[0] < 1, in[0], in[1]); }},
    {"max", [](const Tensors& in) { return max(in[0]); }},
    {"max_of_nan", [](const Tensors& in) { return max(in[0]); }},
    {"min", [](const Tensors& in) { return min(in[0]); }},
    {"max_last", [](const Tensors& in) { return max(in[0], -1); }},
    {"min_last", [](const Tensors& in) { return min(in[0], -1); }},
    {"max_first", [](const Tensors& in) { return max(in[0], 0); }},
};

TEST_P(FunctionGolden, EqualNumbersAndThoseThatAreNotFinite) {
  const Golden golden("function_ops");
  for (const auto& [name, function] : edges) {
    const std::string op = std::string("edge.") + name;
    const Tensors operands = operands_of(golden, op, GetParam());
    const Tensor y = function(operands);
    expect_equal(op + ".y", y, golden.stored(op + ".y"));
    backward(y, full(y.shape(), 1.0, y.dtype()));
    for (size_t i = 0; i < operands.size(); ++i)
      expect_equal(op + ".din_" + "xy"[i], operands[i].grad(), golden.stored(op + ".din_" + "xy"[i]));
  }
}

TEST_P(FunctionGolden, MasksAndPlaces) {
  const Golden golden("function_ops");
  const Tensor a = golden.tensor("mask.in_x", GetParam()), b = golden.tensor("mask.in_y", GetParam());
  expect_equal("less", a < b, golden.stored("mask.less"));
  expect_equal("less_equal", a <= b, golden.stored("mask.less_equal"));
  expect_equal("greater", a > b, golden.stored("mask.greater"));
  expect_equal("greater_equal", a >= b, golden.stored("mask.greater_equal"));
  expect_equal("equal", a == b, golden.stored("mask.equal"));
  expect_equal("not_equal", a != b, golden.stored("mask.not_equal"));
  EXPECT_EQ((a < b).dtype(), GetParam());
  const Tensor rows = golden.tensor("place.in_x", GetParam());
  expect_equal("argmax", argmax(rows), golden.stored("place.argmax"));
  expect_equal("argmin", argmin(rows, 0), golden.stored("place.argmin"));
}

}  // namespace
}  // namespace lockstep::golden_test
