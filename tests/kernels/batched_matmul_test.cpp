// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/batched_matmul.h"

#include "kernels/batched_matmul_cases.h"
#include "lockstep/kernels/matmul.h"
#include "support/user_error.h"

namespace lockstep::testing {
namespace {

TEST(BatchedMatMul, EveryProductHasTheBitsOfMatMul) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const BatchedCase& shapes : batched_cases)
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true}) {
          SCOPED_TRACE(concat(shapes.a, " ", shapes.b, " ", transpose_a, transpose_b, " ", dtype));
          BatchedOperands o(shapes, dtype, transpose_a, transpose_b);
          for (const int threads : {1, 3}) {
            Values c(shapes.c, dtype);
            o.kernel.c = c.view();
            launch_on(threads, o.kernel);
            EXPECT_TRUE(c == products_one_by_one(o, dtype)) << threads << " threads";
          }
        }
}

// Each product is split among the threads, because its 130^3 multiply-adds are more than 2^21.
TEST(BatchedMatMul, LargeProductsAreSharedOut) {
  const BatchedCase shapes{{2, 130, 140}, {140, 150}, {2, 130, 150}};
  BatchedOperands o(shapes, DType::f32, false, false);
  Values c(shapes.c);
  o.kernel.c = c.view();
  launch_on(3, o.kernel);
  EXPECT_TRUE(c == products_one_by_one(o, DType::f32));
}

TEST(BatchedMatMul, MistakesNameBothShapes) {
  Values a({2, 3, 4}), b({5, 4, 6}), narrow({2, 3, 6}), c({2, 3, 6});
  const auto message = [&](Values& right) {
    try {
      launch_on(1, BatchedMatMul{.a = a.view(), .b = right.view(), .c = c.view()});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  expect_contains(message(b), {"a is [2], b is [5]"});
  expect_contains(message(narrow), {"matmul: a is [2, 3, 4], b is [2, 3, 6]", "[..., m, k]"});
}

}  // namespace
}  // namespace lockstep::testing
