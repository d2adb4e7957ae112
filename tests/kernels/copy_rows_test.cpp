// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/copy_rows.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

TEST(CopyRows, LeavesWhatIsBetweenTheRows) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32})
    for (const int64_t rows : {1, 3, 900}) {
      Values x = Values::uniform({rows, 50}, DType::f32, 1, -99, 99), from(x.shape(), dtype),
             to({rows, 70}, dtype);
      for (int64_t i = 0; i < x.size(); ++i) from.set(i, std::round(x[i]));
      const auto after = [](View view, int64_t first) {
        view.data = static_cast<std::byte*>(view.data) + first * bytes(view.dtype);
        view.shape = {view.size() - first};
        return view;
      };
      launch_on(3, CopyRows{.x = after(from.view(), 7),
                            .y = after(to.view(), 20),
                            .rows = rows,
                            .length = 41,
                            .x_stride = 50,
                            .y_stride = 70});
      for (int64_t i = 0; i < to.size(); ++i) {
        const int64_t row = i / 70, column = i % 70 - 20;
        ASSERT_EQ(to[i], column >= 0 && column < 41 ? from[row * 50 + column + 7] : 0.0);
      }
    }
}

TEST(CopyRows, RefusesRowsBeyondAnArray) {
  Values x({10}), y({10});
  const auto copy = [&](int64_t rows, int64_t length, int64_t stride) {
    launch_on(
        1,
        CopyRows{
            .x = x.view(), .y = y.view(), .rows = rows, .length = length, .x_stride = stride, .y_stride = 5});
  };
  copy(2, 5, 5);
  EXPECT_THROW(copy(3, 5, 5), Error);
  EXPECT_THROW(copy(2, 5, 4), Error);
  EXPECT_THROW(copy(2, 5, 6), Error);
}

}  // namespace
}  // namespace lockstep::testing
