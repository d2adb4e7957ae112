// SPDX-License-Identifier: Apache-2.0
// Compares with PyTorch: broadcasting, operations along a dimension, grouped attention, and numbers that are
// not finite.
#include "support/golden.h"

#include <functional>

#include "lockstep/tensor/ops.h"

namespace lockstep::golden_test {
namespace {

using Inputs = std::vector<Tensor>;

struct GoldenOperation {
  const char* name;
  std::function<Tensor(const Inputs&)> function;
};

Inputs inputs_of(const Golden& golden, const std::string& name, DType dtype) {
  Inputs inputs;
  for (const char* input : {".in_x", ".in_y", ".in_z"})
    if (golden.contains(name + input))
      inputs.push_back(golden.tensor(name + input, dtype).set_requires_grad());
  return inputs;
}

class TensorGolden : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, TensorGolden, testing::Values(DType::f32, DType::f64),
                         [](const auto& precision) { return name(precision.param); });

const std::vector<GoldenOperation> operations = {
    {"add", [](const Inputs& in) { return add(in[0], in[1]); }},
    {"subtract", [](const Inputs& in) { return subtract(in[0], in[1]); }},
    {"multiply", [](const Inputs& in) { return multiply(in[0], in[1]); }},
    {"divide", [](const Inputs& in) { return divide(in[0], in[1]); }},
    {"exp", [](const Inputs& in) { return exp(in[0]); }},
    {"log", [](const Inputs& in) { return log(in[0]); }},
    {"sum_middle", [](const Inputs& in) { return sum(in[0], 1); }},
    {"mean_kept", [](const Inputs& in) { return mean(in[0], -2, true); }},
    {"mean_last", [](const Inputs& in) { return mean(in[0], -1); }},
    {"softmax_first", [](const Inputs& in) { return softmax(in[0], 0); }},
    {"softmax_last", [](const Inputs& in) { return softmax(in[0], -1); }},
    {"transpose", [](const Inputs& in) { return transpose(in[0], 1, -1); }},
    {"matmul_one_matrix", [](const Inputs& in) { return matmul(in[0], in[1]); }},
    {"matmul_broadcast", [](const Inputs& in) { return matmul(in[0], in[1]); }},
    {"grouped_attention",
     [](const Inputs& in) { return causal_attention(in[0], in[1], in[2], AttentionHeads(6, 2)); }},
};

TEST_P(TensorGolden, ResultsShapesAndGradients) {
  const Golden golden("tensor_ops");
  for (const auto& [name, function] : operations) {
    const std::string op = name;
    const Inputs inputs = inputs_of(golden, op, GetParam());
    const Tensor y = function(inputs);
    EXPECT_EQ(y.shape(), golden.stored(op + ".y").shape()) << op;
    golden.expect_near(op + ".y", y, GetParam());
    backward(y, golden.tensor(op + ".dy", GetParam()));
    for (size_t i = 0; i < inputs.size(); ++i)
      golden.expect_near(op + ".din_" + "xyz"[i], inputs[i].grad(), GetParam());
  }
}

/// Expects equal values, or NaN in both. The finite values are chosen so that no rounding differs.
void expect_same(const std::string& what, const Tensor& actual, const Tensor& wanted) {
  EXPECT_EQ(actual.shape(), wanted.shape()) << what;
  const std::vector<double> values = to_doubles(actual), truth = to_doubles(wanted);
  for (size_t i = 0; i < truth.size(); ++i)
    EXPECT_TRUE(values[i] == truth[i] || (std::isnan(values[i]) && std::isnan(truth[i])))
        << what << "[" << i << "] is " << values[i] << ", PyTorch has " << truth[i];
}

const std::vector<GoldenOperation> at_the_edge = {
    {"divide", [](const Inputs& in) { return divide(in[0], in[1]); }},
    {"exp", [](const Inputs& in) { return exp(in[0]); }},
    {"log", [](const Inputs& in) { return log(in[0]); }},
    {"softmax", [](const Inputs& in) { return softmax(in[0]); }},
    {"mean_of_nothing", [](const Inputs& in) { return mean(in[0], 1); }},
    {"sum_of_nothing", [](const Inputs& in) { return sum(in[0], 1); }},
};

TEST_P(TensorGolden, NumbersThatAreNotFinite) {
  const Golden golden("tensor_ops");
  for (const auto& [name, function] : at_the_edge) {
    const std::string op = std::string("edge.") + name;
    const Inputs inputs = inputs_of(golden, op, GetParam());
    const Tensor y = function(inputs);
    expect_same(op + ".y", y, golden.stored(op + ".y"));
    backward(y, full(y.shape(), 1.0, y.dtype()));
    expect_same(op + ".din_x", inputs[0].grad(), golden.stored(op + ".din_x"));
    if (inputs.size() > 1) expect_same(op + ".din_y", inputs[1].grad(), golden.stored(op + ".din_y"));
  }
}

}  // namespace
}  // namespace lockstep::golden_test
