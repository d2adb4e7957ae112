// SPDX-License-Identifier: Apache-2.0
#include "kernels/product_operands.h"

namespace lockstep::testing {
namespace {

// Shapes with several blocks of rows or columns, and with tiles that wait for the next group of depth in
// several batches. Some rows are read in place. Rows with a stride of whole pages are packed instead.
TEST(MatMul, LargeProductsAreTheSameChains) {
  for (const ProductCase& c : {ProductCase{800, 520, 800},
                               {1570, 800, 35},
                               {35, 800, 1570},
                               {45, 800, 230},
                               {70, 1024, 200},
                               // One thread's rectangle of c alone would keep the other factor packed. All
                               // follow the largest rectangle (keeps_columns in blocked_product.h).
                               {800, 1024, 256},
                               {540, 768, 256},
                               {636, 768, 320}})
    for_each_order(c, [&](bool transpose_a, bool transpose_b) {
      Operands o(c, DType::f32, transpose_a, transpose_b);
      Values column_sum({c.n}), expected({c.n});
      if (!transpose_b) o.kernel.column_sum = column_sum.view();
      launch_on(1, o.kernel);
      for (int64_t i = 0; i < o.c.size(); i += 29)
        ASSERT_EQ(o.c[i], chained<float>(o, i / c.n, i % c.n)) << "element " << i;
      expect_same_on_more_threads(o.kernel, o.c);
      if (transpose_b) return;
      launch_on(1, ColumnSum{.x = o.b.view(), .y = expected.view()});
      ASSERT_EQ(column_sum, expected);
    });
}

}  // namespace
}  // namespace lockstep::testing
