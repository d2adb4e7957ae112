// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/extreme.h"

#include "kernels/expectations.h"
#include "kernels/function_reference.h"

namespace lockstep::testing {
namespace {

TEST(DimensionExtreme, FindsTheFirstOfTheExtremesAndNaNFirstOfAll) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32})
    for (const Shape& shape : extreme_shapes)
      for (const Extreme extreme : {Extreme::largest, Extreme::smallest}) {
        const int64_t outer = shape[0], count = shape[1], inner = shape[2];
        Values x = few_numbers(shape, dtype, 3);
        const ExtremeReference expected(x, outer, count, inner, extreme);
        for (const int threads : {1, 3}) {
          Values y({outer, inner}, dtype), places({outer, inner}, DType::i32);
          launch_on(threads, DimensionExtreme{.extreme = extreme,
                                              .x = x.view(),
                                              .y = y.view(),
                                              .places = places.view(),
                                              .count = count,
                                              .inner = inner});
          for (int64_t i = 0; i < y.size(); ++i) {
            expect_same_number(y[i], expected.values[static_cast<size_t>(i)]);
            ASSERT_EQ(static_cast<int64_t>(places[i]), expected.places[static_cast<size_t>(i)])
                << shape << " " << dtype;
          }
        }
      }
}

TEST(ExtremeBackward, WritesTheGradientAtThePlaces) {
  for (const DType dtype : float_types) {
    Values dy = Values::uniform({2, 3}, dtype, 1), places({2, 3}, DType::i32), dx({2, 4, 3}, dtype);
    for (int64_t i = 0; i < 6; ++i) places.set(i, static_cast<double>(i % 4));
    launch_on(3, ExtremeBackward{
                     .dy = dy.view(), .places = places.view(), .dx = dx.view(), .count = 4, .inner = 3});
    for (int64_t i = 0; i < dx.size(); ++i) {
      const int64_t at = i / 12 * 3 + i % 3;
      EXPECT_EQ(dx[i], i / 3 % 4 == at % 4 ? dy[at] : 0.0);
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
