// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/swiglu.h"

#include <limits>

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

double silu(double x) { return x / (1.0 + std::exp(-x)); }

TEST(Swiglu, ForwardMatchesReference) {
  for (const DType dtype : float_types) {
    Values gate = Values::uniform({3, 217}, dtype, 1, -12.0, 12.0), up = Values::uniform({3, 217}, dtype, 2);
    Values y(gate.shape(), dtype);
    launch_on(1, SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
    // A few roundings in the compute type, then one to the storage type.
    const double compute = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
    expect_close(
        y, [&](int64_t i) { return silu(gate[i]) * up[i]; }, epsilon_of(dtype) + 8 * compute,
        dtype == DType::f16 ? 0x1p-24 : 0.0);
  }
}

TEST(Swiglu, BackwardMatchesCentralDifferences) {
  const Shape shape{65};
  Values gate = Values::uniform(shape, DType::f64, 2, -6.0, 6.0), up = Values::uniform(shape, DType::f64, 3);
  Values dy = Values::uniform(shape, DType::f64, 4), y(shape, DType::f64);
  Values dgate(shape, DType::f64), dup(shape, DType::f64);
  launch_on(
      1,
      SwigluBackward{
          .gate = gate.view(), .up = up.view(), .dy = dy.view(), .dgate = dgate.view(), .dup = dup.view()});
  const auto loss = [&] {
    launch_on(1, SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
    return dot(y, dy);
  };
  expect_slopes(gate, dgate, loss);
  expect_slopes(up, dup, loss);
}

TEST(Swiglu, BackwardInFloatMatchesDouble) {
  const Shape shape{1000};
  Values gate = Values::uniform(shape, DType::f32, 4, -20.0, 20.0),
         up = Values::uniform(shape, DType::f32, 5);
  Values dy = Values::uniform(shape, DType::f32, 6), dgate(shape), dup(shape);
  Values exact_dgate(shape, DType::f64), exact_dup(shape, DType::f64);
  Values gate64 = gate.in(DType::f64), up64 = up.in(DType::f64), dy64 = dy.in(DType::f64);
  launch_on(
      1,
      SwigluBackward{
          .gate = gate.view(), .up = up.view(), .dy = dy.view(), .dgate = dgate.view(), .dup = dup.view()});
  launch_on(1, SwigluBackward{.gate = gate64.view(),
                              .up = up64.view(),
                              .dy = dy64.view(),
                              .dgate = exact_dgate.view(),
                              .dup = exact_dup.view()});
  // The two terms of the gate's slope cancel near its root, so an absolute part is needed.
  expect_close(
      dgate, [&](int64_t i) { return exact_dgate[i]; }, 16 * 0x1p-23, 8 * 0x1p-23);
  expect_close(
      dup, [&](int64_t i) { return exact_dup[i]; }, 8 * 0x1p-23, 0.0);
}

TEST(Swiglu, GatesFarFromZeroAreOpenOrShut) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Values gate({5}), up({5}), y({5}), dgate({5}), dup({5}), dy({5});
  const double gates[] = {200.0, -200.0, 3e38, -3e38, std::numeric_limits<double>::quiet_NaN()};
  for (int64_t i = 0; i < 5; ++i) gate.set(i, gates[i]), up.set(i, 1.0), dy.set(i, 1.0);
  launch_on(1, SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
  launch_on(
      1,
      SwigluBackward{
          .gate = gate.view(), .up = up.view(), .dy = dy.view(), .dgate = dgate.view(), .dup = dup.view()});
  const double open[] = {200.0, 0.0, static_cast<float>(3e38), 0.0}, slopes[] = {1.0, 0.0, 1.0, 0.0};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(y[i], open[i]);
    EXPECT_EQ(dup[i], open[i]);
    EXPECT_EQ(dgate[i], slopes[i]);
  }
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_NE(dgate[4], infinity);
}

TEST(Swiglu, ThreadsAndAliasesDoNotShowInTheBits) {
  const Shape shape{123, 457};
  Values gate = Values::uniform(shape, DType::f32, 6, -9, 9), up = Values::uniform(shape, DType::f32, 7);
  Values dy = Values::uniform(shape, DType::f32, 8), y(shape), dgate(shape), dup(shape);
  launch_on(1, SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
  launch_on(
      1,
      SwigluBackward{
          .gate = gate.view(), .up = up.view(), .dy = dy.view(), .dgate = dgate.view(), .dup = dup.view()});
  Values up_too = up;
  launch_on(3, SwigluForward{.gate = gate.view(), .up = up_too.view(), .y = up_too.view()});
  EXPECT_TRUE(up_too == y);
  launch_on(
      3, SwigluBackward{
             .gate = gate.view(), .up = up.view(), .dy = dy.view(), .dgate = gate.view(), .dup = dy.view()});
  EXPECT_TRUE(gate == dgate && dy == dup);
}

}  // namespace
}  // namespace lockstep::testing
