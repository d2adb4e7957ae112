// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>

#include "kernels/values.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep::testing {

struct ProductCase {
  int64_t m, k, n;
};

/// Calls body(transpose a, transpose b) for all four storage orders of the factors. Stops at the first
/// failure.
template <class Body>
void for_each_order(const ProductCase& size, Body&& body) {
  for (const bool of_a : {false, true})
    for (const bool of_b : {false, true}) {
      SCOPED_TRACE(concat(size.m, " x ", size.k, " x ", size.n, of_a ? " a^T" : "", of_b ? " b^T" : ""));
      body(of_a, of_b);
      if (::testing::Test::HasFatalFailure()) return;
    }
}

struct Operands {
  /// The elements of a are in [-largest[0], largest[0]], and those of b in [-largest[1], largest[1]].
  Operands(const ProductCase& size, DType dtype, bool a_flag, bool b_flag,
           std::array<double, 2> largest = {2, 2})
      : a(Values::uniform(a_flag ? Shape{size.k, size.m} : Shape{size.m, size.k}, dtype, 1, -largest[0],
                          largest[0])),
        b(Values::uniform(b_flag ? Shape{size.n, size.k} : Shape{size.k, size.n}, dtype, 2, -largest[1],
                          largest[1])),
        bias(Values::uniform({size.n}, dtype, 3)),
        c({size.m, size.n}, dtype),
        pre_activation({size.m, size.n}, dtype),
        kernel{.a = a.view(), .b = b.view(), .c = c.view(), .transpose_a = a_flag, .transpose_b = b_flag} {}

  double left(int64_t row, int64_t d) const {
    return kernel.transpose_a ? a[d * kernel.m() + row] : a[row * kernel.k() + d];
  }
  double right(int64_t d, int64_t column) const {
    return kernel.transpose_b ? b[column * kernel.k() + d] : b[d * kernel.n() + column];
  }

  Values a, b, bias, c, pre_activation;
  MatMul kernel;
};

/// Implements the contract in the dtype itself. Every 256 of k are one chain of fused multiply-adds, and the
/// blocks are added in order. `kept` is applied to each number, for example to flush subnormal numbers.
template <class T, class Kept = std::identity>
T chained(const Operands& o, int64_t row, int64_t column, Kept kept = {}) {
  T sum{0};
  for (int64_t begin = 0; begin < o.kernel.k(); begin += 256) {
    T block{0};
    for (int64_t d = begin; d < std::min<int64_t>(begin + 256, o.kernel.k()); ++d)
      block = kept(
          std::fma(kept(static_cast<T>(o.left(row, d))), kept(static_cast<T>(o.right(d, column))), block));
    sum = begin == 0 ? block : kept(sum + block);
  }
  return sum;
}

/// Several threads must write every element of c with the bits that one thread wrote.
inline void expect_same_on_more_threads(const MatMul& kernel, Values& c) {
  const Values alone = c;
  for (const int threads : {2, 3}) {
    for (int64_t i = 0; i < c.size(); ++i) c.set(i, NAN);
    launch_on(threads, kernel);
    ASSERT_EQ(c, alone) << threads << " threads";
  }
}

}  // namespace lockstep::testing
