// SPDX-License-Identifier: Apache-2.0
// Compares all operations of the table on a GPU with the CPU in double precision.
#include <algorithm>

#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/checkpoint.h"
#include "support/cuda.h"
#include "support/op_cases.h"

namespace lockstep {
namespace {

/// Returns the operation's result and the gradients of all inputs, computed on the CPU or a GPU.
std::vector<std::vector<double>> run(const OpCase& op, const Stream& stream, DType dtype) {
  set_current_stream(cpu_stream());
  Tensors inputs;
  for (const Tensor& input : make_inputs(op.small, DType::f32)) {
    const Tensor there = to_stream(dtype == DType::f32 ? input.detach() : convert(input, dtype), stream);
    inputs.push_back(there.detach().set_requires_grad());
  }
  set_current_stream(stream);
  const Tensor y = op.function(inputs);
  backward(weighted_sum(y));
  std::vector<std::vector<double>> results{to_doubles(y)};
  for (const Tensor& input : inputs) results.push_back(to_doubles(input.grad()));
  set_current_stream(cpu_stream());
  return results;
}

class OpOnGpu : public testing::TestWithParam<OpCase> {};
INSTANTIATE_TEST_SUITE_P(All, OpOnGpu, testing::ValuesIn(all_cases()),
                         [](const auto& op) { return op.param.name; });

// The bound of the CPU: a chain of n roundings by 2^-24 of the largest number involved. A GPU's exponential
// errs by about 2^-22 of its result and of its argument. Functions count as four, hence a factor of four.
TEST_P(OpOnGpu, ResultAndGradientsAreTheCpus) {
  LOCKSTEP_NEEDS_GPU();
  const auto exact = run(GetParam(), cpu_stream(), DType::f64);
  for_each_schedule([&] {
    const auto single = run(GetParam(), gpu_stream(), DType::f32);
    for (size_t t = 0; t < exact.size(); ++t) {
      double largest = 1.05;
      for (const double value : exact[t]) largest = std::max(largest, std::fabs(value));
      const double bound = 4 * static_cast<double>(GetParam().additions + 1) * 0x1p-24 * largest;
      for (size_t i = 0; i < exact[t].size(); ++i)
        ASSERT_NEAR(single[t][i], exact[t][i], bound)
            << (t == 0 ? "result" : "gradient") << ", element " << i;
    }
  });
}

/// Two linear layers with biases, and the uses of the first one's result. Its bias's gradient is the sums of
/// the columns of the result's gradient, which a layer norm's backward may have.
struct BiasCase {
  const char* name;
  std::function<Tensor(const Tensor& y, const std::vector<Tensor>& p)> uses;
};

Tensor norm_of(const Tensor& y, const std::vector<Tensor>& p) { return layer_norm(y, p[4], p[5]); }

/// Returns the gradients of x and of all parameters on a stream.
std::vector<std::vector<double>> bias_gradients(const BiasCase& one, const Stream& stream, DType dtype,
                                                bool accumulates) {
  std::vector<Tensor> p;
  const std::vector<Shape> shapes = {{7, 6}, {6, 8}, {8}, {8, 8}, {8}, {8}, {8}};
  set_current_stream(cpu_stream());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Tensor values = empty(shapes[i], DType::f32);
    fill_normal(values, 0.0, 1.0, 1, static_cast<uint32_t>(i));
    p.push_back(to_stream(convert(values, dtype), stream).detach().set_requires_grad());
  }
  set_current_stream(stream);
  for (int times = 0; times < (accumulates ? 2 : 1); ++times) {
    const Tensor y = linear(p[0], p[1], p[2], Tensor(), WeightOrder::in_out);
    backward(weighted_sum(one.uses(y, p)));
    for (const Tensor& leaf : p) leaf_gradient(leaf).accumulate = accumulates;
  }
  std::vector<std::vector<double>> gradients;
  for (const Tensor& leaf : p)
    gradients.push_back(leaf.grad() ? to_doubles(leaf.grad()) : std::vector<double>());
  set_current_stream(cpu_stream());
  return gradients;
}

TEST(ColumnSumsOnGpu, AreThoseOfTheWholeGradient) {
  LOCKSTEP_NEEDS_GPU();
  const auto again = [](const Tensor& x, const std::vector<Tensor>& p) {
    return linear(x, p[3], p[2], x, WeightOrder::in_out);
  };
  const BiasCase cases[] = {
      {"one norm", norm_of},
      {"a later use", [](const auto& y, const auto& p) { return add(norm_of(y, p), scale(y, 2.0)); }},
      {"an earlier use",
       [](const auto& y, const auto& p) {
         const Tensor doubled = scale(y, 2.0);
         return add(norm_of(y, p), doubled);
       }},
      {"two norms",
       [](const auto& y, const auto& p) { return multiply(norm_of(y, p), layer_norm(y, p[6], p[5])); }},
      {"a residual and a shared bias",
       [=](const auto& y, const auto& p) { return norm_of(again(norm_of(y, p), p), p); }},
      {"a checkpoint", [=](const auto& y, const auto& p) {
         const auto inner = [&p, again](const std::vector<Tensor>& x) { return again(x[0], p); };
         return norm_of(checkpoint(inner, {norm_of(y, p)}), p);
       }}};
  for (const BiasCase& one : cases)
    for (const bool accumulates : {false, true}) {
      SCOPED_TRACE(concat(one.name, accumulates ? ", accumulated" : ""));
      const auto exact = bias_gradients(one, cpu_stream(), DType::f64, accumulates);
      const auto single = bias_gradients(one, gpu_stream(), DType::f32, accumulates);
      for (size_t t = 0; t < exact.size(); ++t) {
        ASSERT_EQ(single[t].size(), exact[t].size());
        for (size_t i = 0; i < exact[t].size(); ++i)
          EXPECT_NEAR(single[t][i], exact[t][i], 1e-4) << t << " " << i;
      }
    }
}

// Parameters are f32 and activations are 16 bits. The operations read the parameters' copies, and gradients
// are f32. The numbers are small integers, so that every value is exact.
TEST(OwnModelsOnGpu, ParametersMeetActivationsIn16Bits) {
  LOCKSTEP_NEEDS_GPU();
  set_current_stream(gpu_stream());
  const auto parameter = [](const Shape& shape, double value) {
    return full(shape, value).set_requires_grad();
  };
  const Tensor bias = parameter({3}, 3.0), factor = parameter({2, 1}, 2.0);
  const Tensor matrix = parameter({3, 5}, 1.0), batch = parameter({1, 5, 2}, 1.0);
  ParameterSpace space({{"bias", bias}, {"factor", factor}, {"matrix", matrix}, {"batch", batch}});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    space.set_precision(dtype);
    const Tensor x = multiply(add(full({4, 2, 3}, 2.0, dtype), bias), factor);  // 10
    const Tensor y = matmul(matmul(x, matrix), batch);                          // 30, 150
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(to_doubles(mean(mean(y, 0), -1)), (std::vector<double>{150, 150}));
    backward(sum(y));
    // There are eight rows, and a row of x has the weight 5 * 2.
    for (const auto& [leaf, value] : {std::pair{bias, 8.0 * 2 * 10},
                                      {factor, 12.0 * 5 * 10},
                                      {matrix, 8.0 * 10 * 2},
                                      {batch, 8.0 * 30}}) {
      EXPECT_EQ(leaf.grad().dtype(), DType::f32);
      EXPECT_EQ(leaf.grad().shape(), leaf.shape());
      for (const double gradient : to_doubles(leaf.grad())) EXPECT_EQ(gradient, value) << leaf.shape();
    }
  }
  set_current_stream(cpu_stream());
}

}  // namespace
}  // namespace lockstep
