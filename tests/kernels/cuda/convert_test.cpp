// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/convert.h"

#include "kernels/values.h"
#include "support/cuda.h"

namespace lockstep::testing {
namespace {

TEST(ConvertOnGpu, AnyTwoDtypesGiveTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType from : {DType::f32, DType::bf16, DType::f16, DType::i32})
    for (const DType to : {DType::f32, DType::bf16, DType::f16, DType::i32})
      for (const int64_t size : {3, 2048, 5001}) {
        if (to == DType::i32 && from != DType::i32) continue;
        Values x({size}, from), y({size}, to);
        const auto values = normal_values(size, 1, DType::f32, from == DType::i32 ? 1e7 : 100.0);
        for (int64_t i = 0; i < size; ++i) x.set(i, values[static_cast<size_t>(i)]);
        launch_on(1, Convert{.x = x.view(), .y = y.view()});
        for_each_schedule([&] {
          const DeviceArray device_x(values, {size}, from), device_y({size}, to);
          launch(gpu_stream(), Convert{.x = device_x.view(), .y = device_y.view()});
          const auto result = device_y.values();
          for (int64_t i = 0; i < size; ++i) ASSERT_EQ(result[static_cast<size_t>(i)], y[i]) << x[i];
        });
      }
}

TEST(ConvertOnGpu, SlicesBetweenAccessesAreConverted) {
  LOCKSTEP_NEEDS_GPU();
  const auto values = normal_values(100, 2, DType::bf16);
  const DeviceArray x(values, {100}, DType::bf16), y({100}, DType::f32);
  View slice = x.view(), target = y.view();
  slice.data = static_cast<char*>(slice.data) + 3 * 2;
  slice.shape = target.shape = {97};
  launch(gpu_stream(), Convert{.x = slice, .y = target});
  const auto result = y.values();
  for (size_t i = 0; i < 97; ++i) ASSERT_EQ(result[i], values[i + 3]);
}

TEST(ConvertOnGpu, DoubleIsRefused) {
  LOCKSTEP_NEEDS_GPU();
  const DeviceArray x({4}, DType::f64), y({4}, DType::f32);
  EXPECT_THROW(launch(gpu_stream(), Convert{.x = x.view(), .y = y.view()}), Error);
  EXPECT_THROW(launch(gpu_stream(), Convert{.x = y.view(), .y = x.view()}), Error);
}

}  // namespace
}  // namespace lockstep::testing
