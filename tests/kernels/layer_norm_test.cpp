// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/layer_norm.h"

#include "kernels/expectations.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep::testing {
namespace {

struct LayerNormCase {
  Values x, weight, bias, y, mean, rstd, dy, dx, dweight, dbias;

  LayerNormCase(Shape shape, DType dtype)
      : x(Values::uniform(shape, dtype, 1)),
        weight(Values::uniform({shape[-1]}, dtype, 2)),
        bias(Values::uniform({shape[-1]}, dtype, 3)),
        y(shape, dtype),
        mean({shape.rows()}, dtype),
        rstd({shape.rows()}, dtype),
        dy(Values::uniform(shape, dtype, 4)),
        dx(shape, dtype),
        dweight({shape[-1]}, dtype),
        dbias({shape[-1]}, dtype) {}

  void forward(int threads, bool with_bias) {
    launch_on(threads, LayerNormForward{.x = x.view(),
                                        .weight = weight.view(),
                                        .bias = with_bias ? bias.view() : View{},
                                        .y = y.view(),
                                        .mean = mean.view(),
                                        .rstd = rstd.view()});
  }
  void backward(int threads, bool with_bias) {
    launch_on(threads, LayerNormBackward{.x = x.view(),
                                         .weight = weight.view(),
                                         .mean = mean.view(),
                                         .rstd = rstd.view(),
                                         .dy = dy.view(),
                                         .dx = dx.view(),
                                         .dweight = dweight.view(),
                                         .dbias = with_bias ? dbias.view() : View{}});
  }
};

/// These columns do not fill a vector. The elements next to them must not reach their sums.
TEST(LayerNorm, EqualRowsOfHugeNumbersHaveNoGradient) {
  for (const int64_t columns : {1, 5, 32, 33, 65, 100}) {
    LayerNormCase c({3, columns}, DType::f32);
    for (int64_t i = 0; i < 3 * columns; ++i) c.x.set(i, 0x1p121), c.dy.set(i, 1.0);
    for (int64_t i = 0; i < columns; ++i) c.weight.set(i, 1.0);
    c.forward(1, true);
    c.backward(1, true);
    expect_close(
        c.dx, [](int64_t) { return 0.0; }, 0.0, 0.0);
  }
}

TEST(LayerNorm, ForwardMatchesReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t columns : {1, 7, 65, 384, 1000})
      for (const bool with_bias : {true, false}) {
        LayerNormCase c({2, 3, columns}, dtype);
        c.forward(1, with_bias);
        const auto reference = [&](int64_t i) {
          const int64_t begin = i / columns * columns;
          double mean = 0.0, variance = 0.0;
          for (int64_t j = 0; j < columns; ++j) mean += c.x[begin + j] / static_cast<double>(columns);
          for (int64_t j = 0; j < columns; ++j)
            variance += (c.x[begin + j] - mean) * (c.x[begin + j] - mean) / static_cast<double>(columns);
          const double normal = (c.x[i] - mean) / std::sqrt(variance + 1e-5);
          return normal * c.weight[i % columns] + (with_bias ? c.bias[i % columns] : 0.0);
        };
        // A lane sums up to 1000 / 32 + 5 terms of values up to 2. The error is multiplied by 1 / deviation,
        // which is about 1.
        expect_close(c.y, reference, 0.0, 64 * epsilon_of(dtype) * (columns == 1 ? 316 : 1));
      }
}

TEST(LayerNorm, BackwardMatchesCentralDifferences) {
  for (const int64_t columns : {7, 65}) {
    LayerNormCase c({3, columns}, DType::f64);
    const auto loss = [&] {
      c.forward(1, true);
      return dot(c.y, c.dy);
    };
    loss();
    c.backward(1, true);
    expect_slopes(c.x, c.dx, loss);
    expect_slopes(c.weight, c.dweight, loss);
    expect_slopes(c.bias, c.dbias, loss);
  }
}

TEST(LayerNorm, BackwardInFloatMatchesDouble) {
  constexpr int64_t rows = 100, columns = 384;
  LayerNormCase c({rows, columns}, DType::f32), exact({rows, columns}, DType::f64);
  for (LayerNormCase* of : {&c, &exact}) of->forward(1, true), of->backward(1, true);
  expect_close(
      c.dx, [&](int64_t i) { return exact.dx[i]; }, 0.0, 64 * 0x1p-23);
  // Sums of 100 terms up to 4 in blocks of 32. The 35 partial sums are below 400, mostly far below, and each
  // is rounded.
  expect_close(
      c.dweight, [&](int64_t i) { return exact.dweight[i]; }, 0.0, 35 * 100 * 0x1p-23);
  expect_close(
      c.dbias, [&](int64_t i) { return exact.dbias[i]; }, 0.0, 35 * 100 * 0x1p-23);
}

TEST(LayerNorm, ThreadsAliasesAndBiasDoNotShowInTheBits) {
  const Shape shape{301, 129};
  LayerNormCase one(shape, DType::f32), three(shape, DType::f32);
  one.forward(1, true);
  one.backward(1, true);
  three.forward(3, true);
  EXPECT_TRUE(one.y == three.y && one.mean == three.mean && one.rstd == three.rstd);
  three.backward(3, false);
  EXPECT_TRUE(one.dx == three.dx && one.dweight == three.dweight);
  three.backward(3, true);
  EXPECT_TRUE(one.dbias == three.dbias);
  launch_on(2, LayerNormBackward{.x = three.x.view(),
                                 .weight = three.weight.view(),
                                 .mean = three.mean.view(),
                                 .rstd = three.rstd.view(),
                                 .dy = three.dy.view(),
                                 .dx = three.dy.view(),
                                 .dweight = three.dweight.view(),
                                 .dbias = three.dbias.view()});
  EXPECT_TRUE(one.dx == three.dy);
  EXPECT_TRUE(one.dweight == three.dweight && one.dbias == three.dbias);
}

TEST(LayerNorm, SumsOfDxAreThoseOfItsColumns) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    LayerNormCase c({301, 65}, dtype);
    Values sums({65}, dtype), of_columns({65}, dtype);
    c.forward(1, true);
    launch_on(3, LayerNormBackward{.x = c.x.view(),
                                   .weight = c.weight.view(),
                                   .mean = c.mean.view(),
                                   .rstd = c.rstd.view(),
                                   .dy = c.dy.view(),
                                   .dx = c.dx.view(),
                                   .dweight = c.dweight.view(),
                                   .dx_sum = sums.view()});
    launch_on(1, ColumnSum{.x = c.dx.view(), .y = of_columns.view()});
    EXPECT_TRUE(sums == of_columns);
  }
}

TEST(LayerNorm, ResidualIsAddedFirst) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Shape shape{5, 129};
    LayerNormCase c(shape, dtype), of_sum(shape, dtype);
    Values residual = Values::uniform(shape, dtype, 5), sum(shape, dtype);
    for (int64_t i = 0; i < sum.size(); ++i) of_sum.x.set(i, c.x[i] + residual[i]);
    of_sum.forward(1, true);
    LayerNormForward kernel{.x = c.x.view(),
                            .residual = residual.view(),
                            .weight = c.weight.view(),
                            .bias = c.bias.view(),
                            .sum = sum.view(),
                            .y = c.y.view(),
                            .mean = c.mean.view(),
                            .rstd = c.rstd.view()};
    launch_on(3, kernel);
    EXPECT_TRUE(sum == of_sum.x);
    EXPECT_TRUE(c.y == of_sum.y && c.mean == of_sum.mean && c.rstd == of_sum.rstd);
    kernel.sum = kernel.residual;
    launch_on(1, kernel);
    EXPECT_TRUE(residual == sum && c.y == of_sum.y);
    kernel.sum = {};
    EXPECT_THROW(launch_on(1, kernel), Error);
  }
}

TEST(LayerNorm, CarriedIsAddedToTheGradient) {
  const Shape shape{40, 65};
  LayerNormCase c(shape, DType::f32), joined(shape, DType::f32);
  for (LayerNormCase* of : {&c, &joined}) of->forward(1, true);
  c.backward(1, true);
  Values carried = Values::uniform(shape, DType::f32, 6);
  LayerNormBackward kernel{.x = joined.x.view(),
                           .weight = joined.weight.view(),
                           .mean = joined.mean.view(),
                           .rstd = joined.rstd.view(),
                           .dy = joined.dy.view(),
                           .carried = carried.view(),
                           .dx = joined.dx.view(),
                           .dweight = joined.dweight.view(),
                           .dbias = joined.dbias.view()};
  launch_on(3, kernel);
  for (int64_t i = 0; i < carried.size(); ++i)
    ASSERT_EQ(joined.dx[i], static_cast<float>(carried[i]) + static_cast<float>(c.dx[i]));
  EXPECT_TRUE(joined.dweight == c.dweight && joined.dbias == c.dbias);
  kernel.dx = kernel.carried;
  launch_on(1, kernel);
  EXPECT_TRUE(carried == joined.dx);
}

/// Forward and backward without a mean: RMSNorm.
void run_rms_norm(LayerNormCase& c, int threads) {
  launch_on(threads, LayerNormForward{.x = c.x.view(),
                                      .weight = c.weight.view(),
                                      .y = c.y.view(),
                                      .rstd = c.rstd.view(),
                                      .epsilon = 1e-3});
  launch_on(threads, LayerNormBackward{.x = c.x.view(),
                                       .weight = c.weight.view(),
                                       .rstd = c.rstd.view(),
                                       .dy = c.dy.view(),
                                       .dx = c.dx.view(),
                                       .dweight = c.dweight.view()});
}

TEST(RmsNorm, ForwardMatchesReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t columns : {1, 7, 65, 384, 1000}) {
      LayerNormCase c({2, 3, columns}, dtype);
      run_rms_norm(c, 1);
      const auto reference = [&](int64_t i) {
        double square = 0.0;
        for (int64_t j = i / columns * columns; j < (i / columns + 1) * columns; ++j)
          square += c.x[j] * c.x[j];
        return c.x[i] / std::sqrt(square / static_cast<double>(columns) + 1e-3) * c.weight[i % columns];
      };
      // A lane sums up to 1000 / 32 + 5 squares, all positive.
      expect_close(c.y, reference, 64 * epsilon_of(dtype), 0.0);
    }
}

TEST(RmsNorm, BackwardMatchesCentralDifferences) {
  for (const int64_t columns : {7, 65}) {
    LayerNormCase c({3, columns}, DType::f64);
    const auto loss = [&] {
      run_rms_norm(c, 1);
      return dot(c.y, c.dy);
    };
    loss();
    const LayerNormCase result = c;
    expect_slopes(c.x, result.dx, loss);
    expect_slopes(c.weight, result.dweight, loss);
  }
}

TEST(RmsNorm, ThreadsDoNotShowInTheBits) {
  LayerNormCase one({301, 129}, DType::f32), three({301, 129}, DType::f32);
  run_rms_norm(one, 1);
  run_rms_norm(three, 3);
  EXPECT_TRUE(one.y == three.y && one.rstd == three.rstd && one.dx == three.dx &&
              one.dweight == three.dweight);
}

TEST(LayerNorm, ShapesThatDoNotFitAreRefused) {
  LayerNormCase c({2, 8}, DType::f32);
  c.weight = Values({7});
  EXPECT_THROW(c.forward(1, true), Error);
}

}  // namespace
}  // namespace lockstep::testing
