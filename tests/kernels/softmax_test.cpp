// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/softmax.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

TEST(Softmax, MatchesReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t columns : {1, 7, 65, 384, 3000}) {
      Values x = Values::uniform({12, columns}, dtype, 1, -10.0, 10.0), y(x.shape(), dtype);
      launch_on(1, SoftmaxForward{.x = x.view(), .y = y.view()});
      for (int64_t row = 0; row < 12; ++row) {
        double sum = 0.0;
        for (int64_t j = 0; j < columns; ++j) sum += std::exp(x[row * columns + j]);
        // A difference of up to 20 is rounded before the exponential. The exponential then has two roundings,
        // the sum up to 94 + 5 and the quotient one.
        for (int64_t j = 0; j < columns; ++j) {
          const double expected = std::exp(x[row * columns + j]) / sum;
          ASSERT_NEAR(y[row * columns + j], expected, 130 * epsilon_of(dtype) / 2 * expected);
        }
      }
      launch_on(3, SoftmaxForward{.x = x.view(), .y = x.view()});
      EXPECT_TRUE(x == y);
    }
}

TEST(Softmax, GradientMatchesCentralDifferences) {
  for (const int64_t columns : {1, 7, 65}) {
    Values x = Values::uniform({6, columns}, DType::f64, 2),
           dy = Values::uniform({6, columns}, DType::f64, 3);
    Values y(x.shape(), DType::f64), dx(x.shape(), DType::f64);
    const auto forward = [&] {
      launch_on(1, SoftmaxForward{.x = x.view(), .y = y.view()});
      return dot(y, dy);
    };
    forward();
    launch_on(1, SoftmaxBackward{.y = y.view(), .dy = dy.view(), .dx = dx.view()});
    expect_slopes(x, dx, forward);
  }
}

TEST(Softmax, ThreadsDoNotShowInTheBits) {
  Values x = Values::uniform({99, 401}, DType::f32, 1), dy = Values::uniform({99, 401}, DType::f32, 2);
  Values one(x.shape()), three(x.shape()), y(x.shape());
  launch_on(1, SoftmaxForward{.x = x.view(), .y = y.view()});
  launch_on(1, SoftmaxBackward{.y = y.view(), .dy = dy.view(), .dx = one.view()});
  launch_on(3, SoftmaxBackward{.y = y.view(), .dy = dy.view(), .dx = three.view()});
  EXPECT_TRUE(one == three);
  launch_on(3, SoftmaxBackward{.y = y.view(), .dy = dy.view(), .dx = dy.view()});
  EXPECT_TRUE(dy == one);
}

TEST(Softmax, MasksAndWhatIsNotFinite) {
  Values x({4, 3}), y({4, 3});
  const double rows[] = {0.0, -INFINITY, 0.0, -INFINITY, -INFINITY, -INFINITY,
                         0.0, NAN,       1.0, INFINITY,  0.0,       1.0};
  for (int64_t i = 0; i < 12; ++i) x.set(i, rows[i]);
  launch_on(1, SoftmaxForward{.x = x.view(), .y = y.view()});
  EXPECT_EQ(y[0], 0.5);
  EXPECT_EQ(y[1], 0.0);
  EXPECT_EQ(y[2], 0.5);
  for (int64_t i = 3; i < 9; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  EXPECT_TRUE(std::isnan(y[9]));
}

TEST(Softmax, LargeNumbersDoNotOverflow) {
  Values x({1, 2}), y({1, 2});
  x.set(0, 1e30);
  x.set(1, 1e30);
  launch_on(1, SoftmaxForward{.x = x.view(), .y = y.view()});
  EXPECT_EQ(y[0], 0.5);
}

}  // namespace
}  // namespace lockstep::testing
