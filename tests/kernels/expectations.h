// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <gtest/gtest.h>

#include "kernels/values.h"

namespace lockstep::testing {

/// Asserts |actual[i] - expected(i)| <= relative |expected(i)| + absolute for every i.
inline void expect_close(const Values& actual, const std::function<double(int64_t)>& expected,
                         double relative, double absolute) {
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double value = expected(i);
    ASSERT_LE(std::fabs(actual[i] - value), relative * std::fabs(value) + absolute)
        << "element " << i << " is " << actual[i] << ", expected " << value;
  }
}

/// Compares dx with central differences of `loss` in the f64 values x, with h = 1e-4. The differences err by
/// h^2 / 6 times the third derivative, and by about 2^-52 |loss| / h from rounding. That is about 1e-8 for
/// values of order one.
inline void expect_slopes(Values& x, const Values& dx, const std::function<double()>& loss) {
  constexpr double h = 1e-4;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x.set(i, before + h);
    const double above = loss();
    x.set(i, before - h);
    const double below = loss();
    x.set(i, before);
    const double slope = (above - below) / (2 * h);
    ASSERT_NEAR(dx[i], slope, 1e-6 * (1.0 + std::fabs(slope))) << "element " << i;
  }
}

}  // namespace lockstep::testing
