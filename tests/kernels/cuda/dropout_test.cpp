// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/dropout.h"

#include "kernels/values.h"
#include "lockstep/kernels/elementwise.h"
#include "support/cuda.h"

namespace lockstep::testing {
namespace {

constexpr RandomKey key{.seed = 0x123456789abcdef, .step = 17, .sample = 40, .site = 3};

std::vector<double> ones_to_two(int64_t count, DType dtype) {
  auto values = normal_values(count, 1, dtype);
  for (double& value : values) value = 1.0 + std::min(std::fabs(std::round(value * 16.0) / 64.0), 1.0);
  return values;
}

// Samples of an odd size, of whole groups of 8, of half groups, of several blocks.
const Shape shapes[] = {{5, 7}, {3, 2, 96}, {2, 12}, {2, 9001}, {2, 64, 72}};

TEST(DropoutOnGpu, MaskIsTheCpusBitForBit) {
  LOCKSTEP_NEEDS_GPU();
  for (const Shape& shape : shapes)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const auto values = ones_to_two(shape.elements(), dtype);
      Values x(shape), y(shape);
      for (int64_t i = 0; i < x.size(); ++i) x.set(i, values[static_cast<size_t>(i)]);
      launch_on(1, Dropout{.x = x.view(), .y = y.view(), .probability = 0.3, .key = key});
      // The CPU's product in f32, rounded once to the storage.
      Values rounded(shape, dtype);
      for (int64_t i = 0; i < y.size(); ++i) rounded.set(i, y[i]);
      for_each_schedule([&] {
        const DeviceArray device_x(values, shape, dtype), device_y(shape, dtype);
        launch(gpu_stream(),
               Dropout{.x = device_x.view(), .y = device_y.view(), .probability = 0.3, .key = key});
        const auto result = device_y.values();
        for (int64_t i = 0; i < y.size(); ++i)
          ASSERT_EQ(result[static_cast<size_t>(i)], rounded[i]) << "element " << i << " of " << shape;
        launch(gpu_stream(),
               Dropout{.x = device_x.view(), .y = device_x.view(), .probability = 0.3, .key = key});
        EXPECT_EQ(device_x.bits(), device_y.bits());
      });
    }
}

TEST(DropoutOnGpu, StepIsReadFromTheDevice) {
  LOCKSTEP_NEEDS_GPU();
  const Shape shape{2, 640};
  const DeviceArray x(ones_to_two(shape.elements(), DType::bf16), shape, DType::bf16);
  const DeviceArray step({1}, DType::i32), direct(shape, DType::bf16), indirect(shape, DType::bf16);
  launch(gpu_stream(), SetStep{.y = step.view(), .value = key.step});
  RandomKey on_device = key;
  on_device.step = 99;
  on_device.device_step = static_cast<const uint32_t*>(step.view().data);
  launch(gpu_stream(), Dropout{.x = x.view(), .y = direct.view(), .probability = 0.5, .key = key});
  launch(gpu_stream(), Dropout{.x = x.view(), .y = indirect.view(), .probability = 0.5, .key = on_device});
  EXPECT_EQ(indirect.bits(), direct.bits());
  launch(gpu_stream(), SetStep{.y = step.view(), .value = key.step + 1});
  launch(gpu_stream(), Dropout{.x = x.view(), .y = indirect.view(), .probability = 0.5, .key = on_device});
  EXPECT_NE(indirect.bits(), direct.bits());
}

}  // namespace
}  // namespace lockstep::testing
