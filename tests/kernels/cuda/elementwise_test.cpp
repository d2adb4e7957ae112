// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/elementwise.h"

#include "kernels/values.h"
#include "support/cuda.h"

namespace lockstep::testing {
namespace {

constexpr DType storage_types[] = {DType::f32, DType::bf16, DType::f16};
// One element, less than an access, several blocks with and without a rest.
constexpr int64_t sizes[] = {1, 7, 4096, 9003};

Values host_copy(const std::vector<double>& values, const Shape& shape, DType dtype) {
  Values copy(shape, dtype);
  for (int64_t i = 0; i < copy.size(); ++i) copy.set(i, values[static_cast<size_t>(i)]);
  return copy;
}

void expect_equal(const DeviceArray& actual, const Values& expected) {
  const std::vector<double> values = actual.values();
  for (int64_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(values[static_cast<size_t>(i)], expected[i]) << "element " << i;
}

/// Returns all but the first element, a view that begins between multiples of 16 bytes.
View without_first(View view) {
  view.data = static_cast<char*>(view.data) + bytes(view.dtype);
  view.shape = {view.size() - 1};
  return view;
}

/// Checks that K{a, b, y} has the bits of the CPU backend, also in place and between multiples of 16 bytes.
template <class K>
void check_binary() {
  for (const DType dtype : storage_types)
    for (const int64_t size : sizes) {
      const Shape shape{size};
      const auto a_values = normal_values(size, 1, dtype), b_values = normal_values(size, 2, dtype);
      Values a = host_copy(a_values, shape, dtype), b = host_copy(b_values, shape, dtype), y(shape, dtype);
      launch_on(1, K{a.view(), b.view(), y.view()});
      for_each_schedule([&] {
        const DeviceArray device_a(a_values, shape, dtype), device_b(b_values, shape, dtype);
        const DeviceArray device_y(shape, dtype), shifted_y(shape, dtype);
        launch(gpu_stream(), K{device_a.view(), device_b.view(), device_y.view()});
        expect_equal(device_y, y);
        launch(gpu_stream(), K{without_first(device_a.view()), without_first(device_b.view()),
                               without_first(shifted_y.view())});
        const auto shifted = shifted_y.values();
        for (int64_t i = 1; i < size; ++i) ASSERT_EQ(shifted[static_cast<size_t>(i)], y[i]);
        launch(gpu_stream(), K{device_a.view(), device_b.view(), device_a.view()});
        expect_equal(device_a, y);
      });
    }
}

TEST(ElementwiseOnGpu, BinaryKernelsHaveTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  check_binary<ReluBackward>();
  check_binary<TanhBackward>();
}

TEST(ElementwiseOnGpu, ScalesAndReluHaveTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : storage_types)
    for (const int64_t size : sizes) {
      const Shape shape{size};
      const auto values = normal_values(size, 3, dtype);
      Values x = host_copy(values, shape, dtype), factor = host_copy({-0.3}, {1}, DType::f32);
      const DeviceArray device_x(values, shape, dtype), device_factor({-0.3}, {1}, DType::f32);
      const auto check = [&](const auto& on_host, const auto& on_device) {
        Values y(shape, dtype);
        launch_on(1, on_host(y.view()));
        for_each_schedule([&] {
          const DeviceArray device_y(shape, dtype);
          launch(gpu_stream(), on_device(device_y.view()));
          expect_equal(device_y, y);
        });
      };
      check([&](View y) { return Scale{.x = x.view(), .y = y, .factor = 0.7}; },
            [&](View y) { return Scale{.x = device_x.view(), .y = y, .factor = 0.7}; });
      check([&](View y) { return ScaleBy{.x = x.view(), .factor = factor.view(), .y = y}; },
            [&](View y) { return ScaleBy{.x = device_x.view(), .factor = device_factor.view(), .y = y}; });
      check([&](View y) { return ReluForward{.x = x.view(), .y = y}; },
            [&](View y) { return ReluForward{.x = device_x.view(), .y = y}; });
    }
}

TEST(ElementwiseOnGpu, TanhMatchesReference) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : storage_types)
    for (const int64_t size : sizes) {
      auto values = normal_values(size, 4, dtype);
      values[0] = 100.0;
      const DeviceArray x(values, {size}, dtype);
      for_each_schedule([&] {
        const DeviceArray y({size}, dtype);
        launch(gpu_stream(), TanhForward{.x = x.view(), .y = y.view()});
        const auto result = y.values();
        // Half a unit of the storage, plus the exponential's 2^-22 (1 + 2 |x|) times its share of the result.
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(result[i], std::tanh(values[i]),
                      (epsilon_of(dtype) / 2 + 0x1p-21) * std::fabs(std::tanh(values[i])) + 0x1p-25);
      });
    }
}

// CUDA's expf and logf are accurate to 2 ulp.
TEST(ElementwiseOnGpu, ExponentialsAndLogarithmsMatchReference) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : storage_types)
    for (const int64_t size : sizes) {
      auto values = normal_values(size, 5, dtype);
      values[0] = -INFINITY;
      const DeviceArray x(values, {size}, dtype);
      for_each_schedule([&] {
        const DeviceArray y({size}, dtype), z({size}, dtype);
        launch(gpu_stream(), Exp{.x = x.view(), .y = y.view()});
        launch(gpu_stream(), Log{.x = y.view(), .y = z.view()});
        const auto exponentials = y.values(), logarithms = z.values();
        for (size_t i = 0; i < values.size(); ++i) {
          const double exponential = std::exp(values[i]), logarithm = std::log(exponentials[i]);
          ASSERT_NEAR(exponentials[i], exponential, (epsilon_of(dtype) / 2 + 0x1p-22) * exponential);
          if (i == 0)
            ASSERT_EQ(logarithms[i], -INFINITY);
          else
            ASSERT_NEAR(logarithms[i], logarithm,
                        (epsilon_of(dtype) / 2 + 0x1p-22) * std::fabs(logarithm) + 0x1p-25);
        }
      });
    }
}

TEST(ElementwiseOnGpu, FillAndCopyTakeEveryDtype) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32})
    for (const int64_t size : sizes)
      for_each_schedule([&] {
        const DeviceArray x({size}, dtype), y({size}, dtype);
        launch(gpu_stream(), Fill{.y = x.view(), .value = -3.0});
        EXPECT_EQ(x.values(), std::vector<double>(static_cast<size_t>(size), -3.0));
        launch(gpu_stream(), Copy{.x = x.view(), .y = y.view()});
        EXPECT_EQ(y.bits(), x.bits());
      });
}

TEST(ElementwiseOnGpu, ScalarsOfAStepArrive) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    const DeviceArray values({3}, DType::f64), step({1}, DType::i32);
    launch(gpu_stream(), SetValues{.y = values.view(), .values = {0.1, -2.0, 1e300}, .count = 3});
    EXPECT_EQ(values.values(), (std::vector<double>{0.1, -2.0, 1e300}));
    launch(gpu_stream(), SetStep{.y = step.view(), .value = 70000});
    EXPECT_EQ(step.values(), std::vector<double>{70000.0});
    const DeviceArray too_small({2}, DType::f64);
    EXPECT_THROW(launch(gpu_stream(), SetValues{.y = too_small.view(), .values = {}, .count = 3}), Error);
  });
}

TEST(ElementwiseOnGpu, PositionsHaveTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  // Shapes of batch, time and columns. The table has one row more than the time.
  for (const Shape& shape : {Shape{3, 5, 7}, Shape{9, 8, 64}, Shape{5, 3, 130}})
    for (const DType dtype : storage_types) {
      const Shape table_shape{shape[1] + 1, shape[2]};
      const auto x_values = normal_values(shape.elements(), 5, dtype),
                 table_values = normal_values(table_shape.elements(), 6, dtype);
      Values x = host_copy(x_values, shape, dtype), table = host_copy(table_values, table_shape, dtype);
      // The GPU sums 16-bit tensors in f32. The CPU does so for f32 tensors.
      Values x_single = host_copy(x_values, shape, DType::f32), y(shape, dtype), dtable(table_shape);
      launch_on(1, AddPositions{.x = x.view(), .table = table.view(), .y = y.view()});
      launch_on(1, AddPositionsBackward{.dy = x_single.view(), .dtable = dtable.view()});
      for_each_schedule([&] {
        const DeviceArray device_x(x_values, shape, dtype), device_table(table_values, table_shape, dtype);
        const DeviceArray device_y(shape, dtype), device_dtable(table_shape, DType::f32);
        launch(gpu_stream(),
               AddPositions{.x = device_x.view(), .table = device_table.view(), .y = device_y.view()});
        expect_equal(device_y, y);
        launch(gpu_stream(), AddPositionsBackward{.dy = device_x.view(), .dtable = device_dtable.view()});
        expect_equal(device_dtable, dtable);
      });
    }
}

TEST(ElementwiseOnGpu, DoubleIsRefused) {
  LOCKSTEP_NEEDS_GPU();
  const DeviceArray x({4}, DType::f64);
  EXPECT_THROW(launch(gpu_stream(), Exp{.x = x.view(), .y = x.view()}), Error);
}

}  // namespace
}  // namespace lockstep::testing
