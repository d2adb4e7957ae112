// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "kernels/values.h"
#include "lockstep/kernels/batched_matmul.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep::testing {

struct BatchedCase {
  Shape a, b, c;  ///< the shapes without any transposition
};

/// Shapes of less than a tile and of several tiles with a rest. Sums have several blocks or no terms. There
/// are one or two batch dimensions, equal or broadcast on either side.
inline const std::vector<BatchedCase> batched_cases = {
    {{3, 2, 5}, {3, 5, 4}, {3, 2, 4}},       {{2, 3, 7, 9}, {2, 3, 9, 5}, {2, 3, 7, 5}},
    {{2, 1, 7, 9}, {3, 9, 5}, {2, 3, 7, 5}}, {{4, 6}, {2, 3, 6, 5}, {2, 3, 4, 5}},
    {{3, 65, 17}, {1, 17, 66}, {3, 65, 66}}, {{2, 5, 513}, {2, 513, 3}, {2, 5, 3}},
    {{2, 3, 0}, {2, 0, 4}, {2, 3, 4}},       {{0, 3, 2}, {1, 2, 4}, {0, 3, 4}},
};

inline Shape with_matrix_transposed(const Shape& shape, bool is_transposed) {
  Shape result = BatchedMatMul::leading(shape);
  result.append(shape[is_transposed ? -1 : -2]);
  result.append(shape[is_transposed ? -2 : -1]);
  return result;
}

struct BatchedOperands {
  BatchedOperands(const BatchedCase& shapes, DType dtype, bool transpose_a, bool transpose_b)
      : of_c(shapes.c),
        a(Values::uniform(with_matrix_transposed(shapes.a, transpose_a), dtype, 1)),
        b(Values::uniform(with_matrix_transposed(shapes.b, transpose_b), dtype, 2)),
        kernel{
            .a = a.view(), .b = b.view(), .c = {}, .transpose_a = transpose_a, .transpose_b = transpose_b} {}

  Shape of_c;
  Values a, b;
  BatchedMatMul kernel;
};

/// Computes each product of the batch with MatMul. Finds each product's operands by division and remainder.
inline Values products_one_by_one(BatchedOperands& o, DType dtype) {
  Values c(o.of_c, dtype);
  const Shape batch = BatchedMatMul::leading(o.of_c);
  const int64_t inner = batch.rank() > 0 ? batch[-1] : 1;
  const auto number_of = [&](const Shape& operand, int64_t number) {
    const Shape own = BatchedMatMul::leading(operand);
    const int64_t own_inner = own.rank() > 0 ? own[-1] : 1, own_outer = own.rank() > 1 ? own[-2] : 1;
    return (own_outer == 1 ? 0 : number / inner * own_inner) + (own_inner == 1 ? 0 : number % inner);
  };
  for (int64_t i = 0; i < batch.elements(); ++i) {
    const MatMul product{.a = BatchedMatMul::matrix(o.kernel.a, number_of(o.kernel.a.shape, i)),
                         .b = BatchedMatMul::matrix(o.kernel.b, number_of(o.kernel.b.shape, i)),
                         .c = BatchedMatMul::matrix(c.view(), i),
                         .transpose_a = o.kernel.transpose_a,
                         .transpose_b = o.kernel.transpose_b};
    launch_on(1, product);
  }
  return c;
}

}  // namespace lockstep::testing
