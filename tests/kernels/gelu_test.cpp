// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/gelu.h"

#include <numbers>

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

double reference(double x, Gelu form) {
  if (form == Gelu::erf) return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

class GeluOf : public ::testing::TestWithParam<Gelu> {};

TEST_P(GeluOf, ForwardMatchesReference) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    Values x = Values::uniform({3, 217}, dtype, 1, -8.0, 8.0);
    Values y(x.shape(), dtype);
    launch_on(1, GeluForward{.x = x.view(), .y = y.view(), .form = GetParam()});
    // A few roundings of numbers up to 8 in the compute type, then one rounding to the storage type.
    const double compute = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
    expect_close(
        y, [&](int64_t i) { return reference(x[i], GetParam()); }, epsilon_of(dtype) + 8 * compute,
        16 * compute + (dtype == DType::f16 ? 0x1p-24 : 0.0));
  }
}

TEST_P(GeluOf, BackwardMatchesCentralDifferences) {
  Values x = Values::uniform({65}, DType::f64, 2, -6.0, 6.0);
  Values dy = Values::uniform({65}, DType::f64, 3);
  Values y({65}, DType::f64);
  Values dx({65}, DType::f64);
  launch_on(1, GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view(), .form = GetParam()});
  expect_slopes(x, dx, [&] {
    launch_on(1, GeluForward{.x = x.view(), .y = y.view(), .form = GetParam()});
    return dot(y, dy);
  });
}

TEST_P(GeluOf, BackwardInFloatMatchesDouble) {
  Values x = Values::uniform({1000}, DType::f32, 4, -8.0, 8.0);
  Values dy = Values::uniform({1000}, DType::f32, 5);
  Values x64({1000}, DType::f64), dy64({1000}, DType::f64), dx64({1000}, DType::f64);
  for (int64_t i = 0; i < 1000; ++i) x64.set(i, x[i]), dy64.set(i, dy[i]);
  Values dx({1000});
  launch_on(1, GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view(), .form = GetParam()});
  launch_on(1, GeluBackward{.x = x64.view(), .dy = dy64.view(), .dx = dx64.view(), .form = GetParam()});
  // The exponential's argument has two roundings. It is at most 50 while the slope is not yet 0 or 1. The
  // exponential decays much faster than this error grows.
  expect_close(
      dx, [&](int64_t i) { return dx64[i]; }, 16 * 0x1p-23, 16 * 0x1p-23);
}

TEST_P(GeluOf, ThreadsAndAliasesDoNotShowInTheBits) {
  const Shape shape{123, 457};
  Values x = Values::uniform(shape, DType::f32, 6);
  Values dy = Values::uniform(shape, DType::f32, 7);
  Values y(shape), dx(shape);
  launch_on(1, GeluForward{.x = x.view(), .y = y.view(), .form = GetParam()});
  launch_on(1, GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view(), .form = GetParam()});
  launch_on(3, GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dy.view(), .form = GetParam()});
  launch_on(3, GeluForward{.x = x.view(), .y = x.view(), .form = GetParam()});
  EXPECT_TRUE(x == y);
  EXPECT_TRUE(dy == dx);
}

INSTANTIATE_TEST_SUITE_P(BothForms, GeluOf, ::testing::Values(Gelu::tanh, Gelu::erf));

}  // namespace
}  // namespace lockstep::testing
