// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/elementwise.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

/// Compares the kernel K{a, b, y} with `reference` for every dtype and several sizes, in place and on three
/// threads.
template <class K>
void check_binary(double (*reference)(double, double)) {
  for (const DType dtype : float_types)
    for (const int64_t size : {1, 7, 513, 40000}) {
      Values a = Values::uniform({size}, dtype, 1);
      Values b = Values::uniform({size}, dtype, 2);
      Values y({size}, dtype);
      launch_on(1, K{a.view(), b.view(), y.view()});
      // The result is rounded once in the compute type and once to storage. Products reach down to f16's
      // subnormals.
      expect_close(
          y, [&](int64_t i) { return reference(a[i], b[i]); }, epsilon_of(dtype), 0x1p-24);
      launch_on(3, K{a.view(), b.view(), a.view()});
      EXPECT_TRUE(a == y);
    }
}

TEST(Elementwise, ReluBackwardPassesWhereTheInputIsPositive) {
  check_binary<ReluBackward>([](double x, double dy) { return x > 0 ? dy : 0.0; });
}

TEST(Elementwise, TanhBackwardIsTheSlopeAtTheOutput) {
  Values x = Values::uniform({65}, DType::f64, 1);
  Values dy = Values::uniform({65}, DType::f64, 2);
  Values y({65}, DType::f64), dx({65}, DType::f64);
  const auto forward = [&] {
    launch_on(1, TanhForward{.x = x.view(), .y = y.view()});
    return dot(y, dy);
  };
  forward();
  launch_on(1, TanhBackward{.y = y.view(), .dy = dy.view(), .dx = dx.view()});
  expect_slopes(x, dx, forward);
}

TEST(Elementwise, ScaleReluAndTanhMatchReference) {
  for (const DType dtype : float_types) {
    Values x = Values::uniform({1, 700}, dtype, 3);
    Values y(x.shape(), dtype);
    launch_on(1, Scale{.x = x.view(), .y = y.view(), .factor = 0.7});
    expect_close(
        y, [&](int64_t i) { return 0.7 * x[i]; }, 2 * epsilon_of(dtype), 0x1p-24);
    launch_on(1, ReluForward{.x = x.view(), .y = y.view()});
    expect_close(
        y, [&](int64_t i) { return std::max(0.0, x[i]); }, 0.0, 0.0);
    launch_on(1, TanhForward{.x = x.view(), .y = y.view()});
    expect_close(
        y, [&](int64_t i) { return std::tanh(x[i]); }, 2 * epsilon_of(dtype), 0x1p-24);
  }
}

// math::exp and math::log are accurate to one ulp (tests/kernels/math_test.cpp).
TEST(Elementwise, ExponentialsAndLogarithmsMatchReference) {
  for (const DType dtype : float_types) {
    Values x = Values::uniform({1, 700}, dtype, 3);
    Values y(x.shape(), dtype);
    launch_on(1, Exp{.x = x.view(), .y = y.view()});
    expect_close(
        y, [&](int64_t i) { return std::exp(x[i]); }, 2 * epsilon_of(dtype), 0.0);
    launch_on(3, Log{.x = y.view(), .y = x.view()});
    expect_close(
        x, [&](int64_t i) { return std::log(y[i]); }, 2 * epsilon_of(dtype), 0x1p-24);
  }
}

TEST(Elementwise, ExponentialsAndLogarithmsHaveTheirLimits) {
  for (const DType dtype : float_types) {
    Values x({5}, dtype), y({5}, dtype);
    const double values[] = {-INFINITY, INFINITY, NAN, 0.0, -1.0};
    for (int64_t i = 0; i < 5; ++i) x.set(i, values[i]);
    launch_on(1, Exp{.x = x.view(), .y = y.view()});
    EXPECT_EQ(y[0], 0.0);
    EXPECT_EQ(y[1], INFINITY);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 1.0);
    launch_on(1, Log{.x = x.view(), .y = y.view()});
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[2]) && std::isnan(y[4]));
    EXPECT_EQ(y[1], INFINITY);
    EXPECT_EQ(y[3], -INFINITY);
  }
}

TEST(Elementwise, ScaleByIsScaleWithAFactorInMemory) {
  for (const DType dtype : float_types) {
    Values x = Values::uniform({700}, dtype, 3);
    Values factor({1}, accumulator_dtype(dtype)), y(x.shape(), dtype), expected(x.shape(), dtype);
    factor.set(0, 0.7);
    launch_on(1, Scale{.x = x.view(), .y = expected.view(), .factor = factor[0]});
    launch_on(1, ScaleBy{.x = x.view(), .factor = factor.view(), .y = y.view()});
    EXPECT_TRUE(y == expected);
    launch_on(3, ScaleBy{.x = x.view(), .factor = factor.view(), .y = x.view()});
    EXPECT_TRUE(x == expected);
  }
  Values x({2}), wrong({1}, DType::f64);
  EXPECT_THROW(launch_on(1, ScaleBy{.x = x.view(), .factor = wrong.view(), .y = x.view()}), Error);
}

TEST(Elementwise, ScalarsOfAStepAreWritten) {
  Values y({3}, DType::f64), step({1}, DType::i32);
  y.set(2, 5.0);
  launch_on(1, SetValues{.y = y.view(), .values = {0.1, -2.0}, .count = 2});
  expect_close(
      y, [](int64_t i) { return i == 0 ? 0.1 : (i == 1 ? -2.0 : 5.0); }, 0.0, 0.0);
  launch_on(1, SetStep{.y = step.view(), .value = (int64_t{1} << 32) - 1});
  EXPECT_EQ(step[0], -1.0);
  EXPECT_THROW(launch_on(1, SetValues{.y = y.view(), .values = {}, .count = 4}), Error);
}

TEST(Elementwise, ReluKeepsNan) {
  Values x({3});
  x.set(1, NAN);
  launch_on(1, ReluForward{.x = x.view(), .y = x.view()});
  EXPECT_TRUE(std::isnan(x[1]));
}

TEST(Elementwise, FillAndCopyTakeEveryDtype) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32}) {
    Values x({40001}, dtype);
    launch_on(3, Fill{.y = x.view(), .value = -3.0});
    expect_close(
        x, [](int64_t) { return -3.0; }, 0.0, 0.0);
    Values y({40001}, dtype);
    launch_on(3, Copy{.x = x.view(), .y = y.view()});
    EXPECT_TRUE(x == y);
  }
}

TEST(Elementwise, PositionsAreAddedToEverySample) {
  constexpr int64_t batch = 3, time = 5, columns = 7, rows = 6;
  Values x = Values::uniform({batch, time, columns}, DType::f64, 1);
  Values table = Values::uniform({rows, columns}, DType::f64, 2);
  Values dy = Values::uniform({batch, time, columns}, DType::f64, 3);
  Values y(x.shape(), DType::f64);
  const auto forward = [&] {
    launch_on(1, AddPositions{.x = x.view(), .table = table.view(), .y = y.view()});
    return dot(y, dy);
  };
  forward();
  expect_close(
      y, [&](int64_t i) { return x[i] + table[i % (time * columns)]; }, 0.0, 0.0);
  Values dtable = Values::uniform({rows, columns}, DType::f64, 4);
  launch_on(1, AddPositionsBackward{.dy = dy.view(), .dtable = dtable.view()});
  expect_slopes(table, dtable, forward);
  for (int64_t i = time * columns; i < rows * columns; ++i) EXPECT_EQ(dtable[i], 0.0);
}

TEST(Elementwise, ThreadsDoNotShowInPositions) {
  Values x = Values::uniform({9, 31, 130}, DType::f32, 1);
  Values table = Values::uniform({40, 130}, DType::f32, 2);
  Values y(x.shape()), one({40, 130}), three({40, 130});
  launch_on(1, AddPositions{.x = x.view(), .table = table.view(), .y = y.view()});
  launch_on(1, AddPositionsBackward{.dy = x.view(), .dtable = one.view()});
  launch_on(3, AddPositionsBackward{.dy = x.view(), .dtable = three.view()});
  launch_on(3, AddPositions{.x = x.view(), .table = table.view(), .y = x.view()});
  EXPECT_TRUE(x == y);
  EXPECT_TRUE(one == three);
}

TEST(Elementwise, ShapesThatDoNotFitAreRefused) {
  Values a({3}), b({4}), table({2, 3}), x({1, 3, 3});
  EXPECT_THROW(launch_on(1, Exp{.x = a.view(), .y = b.view()}), Error);
  EXPECT_THROW(launch_on(1, Copy{.x = a.view(), .y = b.view()}), Error);
  EXPECT_THROW(launch_on(1, AddPositions{.x = x.view(), .table = table.view(), .y = x.view()}), Error);
}

}  // namespace
}  // namespace lockstep::testing
