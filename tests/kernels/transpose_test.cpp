// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/transpose.h"

#include "kernels/transpose_cases.h"

namespace lockstep::testing {
namespace {

TEST(Transpose, MovesEveryElementToItsPlace) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32})
    for (const auto& [shape, first, second] : transpose_cases) {
      SCOPED_TRACE(concat(shape, " ", first, " ", second, " ", dtype));
      Values x = Values::uniform(shape, dtype, 1, -100.0, 100.0);
      Values y(Transpose::swapped(shape, first, second), dtype), back(shape, dtype);
      launch_on(3, Transpose{.x = x.view(), .y = y.view(), .first = first, .second = second});
      EXPECT_TRUE(y == transposed(x, dtype, first, second));
      launch_on(1, Transpose{.x = y.view(), .y = back.view(), .first = first, .second = second});
      EXPECT_TRUE(back == x);
    }
}

TEST(Transpose, DimensionsThatDoNotFitAreRefused) {
  Values x({2, 3}), y({3, 2}), same({2, 3});
  EXPECT_THROW(launch_on(1, Transpose{.x = x.view(), .y = same.view()}), Error);
  EXPECT_THROW(launch_on(1, Transpose{.x = x.view(), .y = y.view(), .first = 1, .second = 0}), Error);
  EXPECT_THROW(launch_on(1, Transpose{.x = x.view(), .y = y.view(), .first = 0, .second = 2}), Error);
}

}  // namespace
}  // namespace lockstep::testing
