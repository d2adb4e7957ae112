// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/convert.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

constexpr DType all_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32};

TEST(Convert, RoundsOnceBetweenAnyTwoDtypes) {
  for (const DType from : all_types)
    for (const DType to : all_types) {
      if (to == DType::i32 && from != DType::i32) continue;
      Values x = Values::uniform({20001}, from, 1, -100.0, 100.0);
      Values y({20001}, to);
      launch_on(3, Convert{.x = x.view(), .y = y.view()});
      // Half a unit of the target. f64 passes through f32 to 16 bits, which adds half a unit of f32.
      expect_close(
          y, [&](int64_t i) { return x[i]; }, epsilon_of(to) / 2 * (1 + 0x1p-12), 0x1p-25);
    }
}

TEST(Convert, TiesGoToEven) {
  Values x({2});
  x.set(0, 1.0 + 0x1p-8), x.set(1, 1.0 + 3 * 0x1p-8);
  Values y({2}, DType::bf16);
  launch_on(1, Convert{.x = x.view(), .y = y.view()});
  EXPECT_EQ(y[0], 1.0);
  EXPECT_EQ(y[1], 1.0 + 4 * 0x1p-8);
}

TEST(Convert, FloatToIntegerIsRefused) {
  Values x({2}), y({2}, DType::i32);
  EXPECT_THROW(launch_on(1, Convert{.x = x.view(), .y = y.view()}), Error);
}

}  // namespace
}  // namespace lockstep::testing
