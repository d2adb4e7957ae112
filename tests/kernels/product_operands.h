// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/matmul.h"
#include "kernels/values.h"

namespace lockstep::testing {

struct ProductCase {
  int64_t m, k, n;
};

struct Operands {
  Operands(const ProductCase& size, DType dtype, bool a_flag, bool b_flag)
      : a(Values::uniform(a_flag ? Shape{size.k, size.m} : Shape{size.m, size.k}, dtype, 1)),
        b(Values::uniform(b_flag ? Shape{size.n, size.k} : Shape{size.k, size.n}, dtype, 2)),
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

/// The contract, in the dtype itself: a chain of fused multiply-adds per 256 of k, the blocks added in order.
template <class T>
T chained(const Operands& o, int64_t row, int64_t column) {
  T sum{0};
  for (int64_t begin = 0; begin < o.kernel.k(); begin += 256) {
    T block{0};
    for (int64_t d = begin; d < std::min<int64_t>(begin + 256, o.kernel.k()); ++d)
      block = std::fma(static_cast<T>(o.left(row, d)), static_cast<T>(o.right(d, column)), block);
    sum = begin == 0 ? block : sum + block;
  }
  return sum;
}

}  // namespace lockstep::testing
