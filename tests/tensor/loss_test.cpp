// SPDX-License-Identifier: Apache-2.0
// Checks the values of losses, and the inputs that operations refuse.
#include <cmath>

#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::loss_test {
namespace {

/// Returns -log softmax(logits[row])[target] by its definition.
double row_loss(const Tensor& logits, int64_t row, int64_t target) {
  const int64_t classes = logits.shape()[-1];
  const double* values = logits.data<double>() + row * classes;
  double sum = 0.0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(values[c]);
  return std::log(sum) - values[target];
}

TEST(CrossEntropy, IsTheMeanOverTheRowsThatCount) {
  const Tensor logits = uniform_tensor({4, 6}, 1);
  const Tensor targets = from_values<int32_t>({5, -1, 0, 3}, {4});
  const double expected = (row_loss(logits, 0, 5) + row_loss(logits, 2, 0) + row_loss(logits, 3, 3)) / 3;
  EXPECT_NEAR(item(cross_entropy(logits, targets)), expected, 1e-14);
}

TEST(CrossEntropy, IgnoresTheIndexItIsTold) {
  const Tensor logits = uniform_tensor({3, 6}, 1);
  const Tensor targets = from_values<int32_t>({5, -100, 2}, {3});
  EXPECT_NEAR(item(cross_entropy(logits, targets, -100)),
              (row_loss(logits, 0, 5) + row_loss(logits, 2, 2)) / 2, 1e-14);
}

TEST(CrossEntropy, IgnoredRowsHaveNoGradient) {
  Tensor logits = uniform_tensor({3, 4}, 1);
  logits.set_requires_grad();
  backward(cross_entropy(logits, from_values<int32_t>({1, -1, 2}, {3})));
  EXPECT_EQ(to_doubles(logits.grad().slice(1, 2)), std::vector<double>(4, 0.0));
  for (const int64_t row : {0, 2}) {
    double sum = 0.0;
    for (const double slope : to_doubles(logits.grad().slice(row, row + 1))) sum += slope;
    EXPECT_NEAR(sum, 0.0, 1e-15) << "softmax minus one-hot sums to zero";
  }
}

TEST(CrossEntropy, IsZeroIfEveryRowIsIgnoredAndSoAreAllGradients) {
  const Tensor targets = from_values<int32_t>({-1, -1}, {2});
  for (const int64_t rows : {0, 1}) {
    const Tensor x = from_values<float>({1, 2, 3, 4}, {2, 2}).set_requires_grad();
    const Tensor weight = from_values<float>({1, 2, 3, 4, 5, 6}, {3, 2}).set_requires_grad();
    const Tensor loss = linear_cross_entropy(x, weight, targets, rows);
    EXPECT_EQ(item(loss), 0.0);
    backward(loss);
    EXPECT_EQ(to_doubles(x.grad()), std::vector<double>(4, 0.0));
    EXPECT_EQ(to_doubles(weight.grad()), std::vector<double>(6, 0.0));
  }
  EXPECT_EQ(item(cross_entropy(zeros({2, 3}), targets)), 0.0);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Tensor logits = from_values<float>({1e4f, 0, -1e4f, 0}, {1, 4});
  EXPECT_EQ(item(cross_entropy(logits, from_values<int32_t>({0}, {1}))), 0.0);
  EXPECT_EQ(item(cross_entropy(logits, from_values<int32_t>({2}, {1}))), 2e4);
}

TEST(CrossEntropy, RefusesTargetsItCannotUse) {
  const Tensor logits = uniform_tensor({2, 4}, 1);
  EXPECT_THROW(cross_entropy(logits, from_values<int32_t>({0, 4}, {2})), Error);
  EXPECT_THROW(cross_entropy(logits, from_values<int32_t>({0, -2}, {2})), Error);
  EXPECT_THROW(cross_entropy(logits, from_values<int32_t>({0}, {1})), Error);
  EXPECT_THROW(cross_entropy(logits, from_values<float>({0, 1}, {2})), Error);
}

TEST(LinearCrossEntropies, AreTheLossesOfTheRows) {
  const Tensor x = uniform_tensor({2, 3, 5}, 1), weight = uniform_tensor({7, 5}, 2),
               bias = uniform_tensor({7}, 3);
  const Tensor targets = from_values<int32_t>({6, 0, -1, 3, 3, -1}, {2, 3});
  const Tensor losses = linear_cross_entropies(x, weight, targets, 0, -1, bias);
  EXPECT_EQ(losses.shape(), (Shape{2, 3}));
  const Tensor logits = linear(x, weight, bias).reshape({6, 7});
  const std::vector<double> values = to_doubles(losses), wanted = to_doubles(targets);
  double sum = 0.0;
  for (int64_t row = 0; row < 6; ++row) {
    const auto target = static_cast<int64_t>(wanted[static_cast<size_t>(row)]);
    const double expected = target < 0 ? 0.0 : row_loss(logits, row, target);
    EXPECT_NEAR(values[static_cast<size_t>(row)], expected, 1e-14) << row;
    sum += expected;
  }
  EXPECT_NEAR(item(linear_cross_entropy(x, weight, targets, 0, -1, {}, bias)), sum / 4, 1e-14);
  for (const int64_t rows_at_once : {1, 4, 6, 9})
    EXPECT_TRUE(has_same_bits(linear_cross_entropies(x, weight, targets, rows_at_once, -1, bias), losses));
}

// With 1 / the rows that count, all bits are those of the mean. A power of two times that commutes with every
// rounding.
TEST(LinearCrossEntropy, AGivenCountReplacesThatOfTheRows) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t rows_at_once : {0, 2}) {
      const auto run = [&](const Tensor& inverse_count) {
        Tensor x = uniform_tensor({4, 5}, 1, DType::f32), weight = uniform_tensor({6, 5}, 2, DType::f32);
        x.set_requires_grad();
        weight.set_requires_grad();
        const Tensor targets = from_values<int32_t>({1, -1, 3, 0}, {4});
        const Tensor loss = linear_cross_entropy(convert(x, dtype), convert(weight, dtype), targets,
                                                 rows_at_once, -1, {}, {}, inverse_count);
        backward(loss);
        return std::vector{to_doubles(loss), to_doubles(x.grad()), to_doubles(weight.grad())};
      };
      const auto mean = run({});
      EXPECT_EQ(run(full({}, 1.0 / 3)), mean);
      auto twice = mean;
      for (auto& values : twice)
        for (double& value : values) value *= 2;
      EXPECT_EQ(run(full({}, 2.0 / 3)), twice);
    }
}

TEST(CrossEntropy, AGivenCountReplacesThatOfTheRows) {
  const auto run = [](const Tensor& inverse_count, const Tensor& loss_scale = {}) {
    Tensor logits = uniform_tensor({3, 6}, 1, DType::f32);
    logits.set_requires_grad();
    const Tensor targets = from_values<int32_t>({5, -1, 2}, {3});
    const Tensor loss = cross_entropy(logits, targets, -1, loss_scale, inverse_count);
    loss_scale ? backward(loss, 1.0, loss_scale) : backward(loss);
    return std::pair(item(loss), to_doubles(logits.grad()));
  };
  const auto [mean, gradient] = run({});
  EXPECT_EQ(run(full({}, 0.5)), std::pair(mean, gradient));
  EXPECT_EQ(run(full({}, 0.125)).first, mean / 4);
  EXPECT_EQ(run(full({}, 0.125), full({}, 4)), std::pair(mean / 4, gradient)) << "gradients alone are scaled";
  EXPECT_EQ(run(full({}, 0)).second, std::vector<double>(18, 0.0));
  EXPECT_THROW(run(full({}, 0.5, DType::f64)), Error) << "not the dtype of the losses";
  EXPECT_THROW(run(full({1}, 0.5)), Error);
}

// A power of two commutes with every rounding, at any point of the computation.
TEST(LinearCrossEntropy, AStartingGradientScalesAllGradients) {
  for (const int64_t rows_at_once : {0, 2}) {
    std::vector<std::vector<double>> gradients;
    for (const double seed : {1.0, 0.25}) {
      Tensor x = uniform_tensor({3, 5}, 1, DType::f32), weight = uniform_tensor({4, 5}, 2, DType::f32);
      x.set_requires_grad();
      weight.set_requires_grad();
      const Tensor targets = from_values<int32_t>({1, 3, 0}, {3});
      backward(linear_cross_entropy(x, weight, targets, rows_at_once), seed);
      gradients.push_back(to_doubles(scale(x.grad(), 1.0 / seed)));
      gradients.push_back(to_doubles(scale(weight.grad(), 1.0 / seed)));
    }
    EXPECT_EQ(gradients[2], gradients[0]);
    EXPECT_EQ(gradients[3], gradients[1]);
  }
}

TEST(MeanSquaredError, IsTheMeanOfSquares) {
  const Tensor x = from_values<double>({1, 2, 3, 4}, {2, 2}), y = from_values<double>({1, 0, 0, 5}, {2, 2});
  EXPECT_DOUBLE_EQ(item(mean_squared_error(x, y)), (0 + 4 + 9 + 1) / 4.0);
  EXPECT_DOUBLE_EQ(item(mean(x)), 2.5);
  EXPECT_DOUBLE_EQ(item(sum(x)), 10.0);
}

TEST(Operations, RefuseShapesThatDoNotFit) {
  const auto x = [](const Shape& shape) { return uniform_tensor(shape, 1); };
  EXPECT_THROW(add(x({2, 3}), x({3, 2})), Error);
  EXPECT_THROW(multiply(x({2, 3}), x({2})), Error);
  EXPECT_THROW(add(x({2}), uniform_tensor({2}, 1, DType::f32)), Error);
  EXPECT_THROW(linear(x({2, 3}), x({4, 2})), Error);
  EXPECT_THROW(linear(x({2, 3}), x({4, 3}), x({3})), Error);
  EXPECT_THROW(linear(x({2, 3}), x({4, 3}), {}, x({2, 3})), Error);
  EXPECT_THROW(linear(x({2, 3}), x({4, 3}), {}, {}, WeightOrder::in_out), Error);
  EXPECT_THROW(feed_forward(x({2, 3}), {x({3, 4}), {}, x({5, 3}), {}}, Gelu::tanh), Error);
  EXPECT_THROW(feed_forward(x({2, 3}), {x({2, 4}), {}, x({4, 3}), {}}, Gelu::tanh), Error);
  EXPECT_THROW(add_layer_norm(x({2, 3}), x({2, 2}), x({3}), {}), Error);
  EXPECT_THROW(linear_cross_entropy(x({2, 3}), x({4, 3}), from_values<int32_t>({0, 1, 2}, {3})), Error);
  EXPECT_THROW(matmul(x({2, 3}), x({2, 3})), Error);
  EXPECT_THROW(layer_norm(x({2, 3}), x({2}), {}), Error);
  EXPECT_THROW(add_positions(x({1, 5, 3}), x({4, 3})), Error);
  EXPECT_THROW(causal_attention(x({1, 5, 10}), 2), Error);
  EXPECT_THROW(causal_attention(x({5, 12}), 2), Error);
  EXPECT_THROW(causal_attention(x({1, 5, 12}), {3, 2}), Error);
  EXPECT_THROW(causal_attention(x({1, 5, 12}), x({1, 5, 12}), x({1, 5, 6}), {4, 2}), Error);
  EXPECT_THROW(causal_attention(x({1, 5, 12}), x({1, 4, 6}), x({1, 4, 6}), {4, 2}), Error);
  EXPECT_THROW(causal_attention(x({1, 5, 12}), {}, {}, 2), Error);
}

TEST(Operations, AnIdOutsideItsTableIsAnError) {
  const Tensor table = uniform_tensor({4, 3}, 1);
  EXPECT_THROW(embedding(from_values<int32_t>({4}, {1}), table), Error);
  EXPECT_THROW(embedding(from_values<int32_t>({-1}, {1}), table), Error);
  EXPECT_EQ(embedding(from_values<int32_t>({3, 0}, {2, 1}), table).shape(), (Shape{2, 1, 3}));
}

}  // namespace
}  // namespace lockstep::loss_test
