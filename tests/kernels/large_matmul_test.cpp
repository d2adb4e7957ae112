// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include "kernels/product_operands.h"

namespace lockstep::testing {
namespace {

// Several blocks of rows or of columns, tiles that wait for the next group of depth in several lots, rows
// that are read where they lie, and rows at the distance of pages, which are not.
TEST(MatMul, LargeProductsAreTheSameChains) {
  for (const ProductCase& c : {ProductCase{800, 520, 800},
                               {1570, 800, 35},
                               {35, 800, 1570},
                               {45, 800, 230},
                               {70, 1024, 200},
                               // Rectangles of which one alone would keep the other factor.
                               {800, 1024, 256},
                               {540, 768, 256},
                               {636, 768, 320}})
    for (const auto [transpose_a, transpose_b] :
         {std::array{false, false}, {false, true}, {true, false}, {true, true}}) {
      SCOPED_TRACE(concat(c.m, " x ", c.k, " x ", c.n, transpose_a ? " a^T" : "", transpose_b ? " b^T" : ""));
      Operands o(c, DType::f32, transpose_a, transpose_b);
      Values column_sum({c.n}), expected({c.n});
      if (!transpose_b) o.kernel.column_sum = column_sum.view();
      launch_on(1, o.kernel);
      for (int64_t i = 0; i < o.c.size(); i += 29)
        ASSERT_EQ(o.c[i], chained<float>(o, i / c.n, i % c.n)) << "element " << i;
      const Values alone = o.c;
      for (const int threads : {2, 3}) {
        for (int64_t i = 0; i < o.c.size(); ++i) o.c.set(i, NAN);
        launch_on(threads, o.kernel);
        ASSERT_EQ(o.c, alone) << threads << " threads";
      }
      if (transpose_b) continue;
      launch_on(1, ColumnSum{.x = o.b.view(), .y = expected.view()});
      ASSERT_EQ(column_sum, expected);
    }
}

}  // namespace
}  // namespace lockstep::testing
