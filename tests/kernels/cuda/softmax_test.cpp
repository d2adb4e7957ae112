// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/softmax.h"

#include "kernels/cuda/on_gpu.h"
#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

// One warp per row, packed and not; 512 threads per row, packed and not; one column.
constexpr int64_t widths[] = {1, 7, 64, 130, 1000, 2056, 2501};
constexpr int64_t rows = 9;

/// The results in double: y = e^x / sum, and dx = y (dy - sum(y dy)) from the y that the kernel received.
struct Reference {
  Reference(const Values& x, const Values& given_y, const Values& dy, int64_t columns) {
    for (int64_t row = 0; row < x.size() / columns; ++row) {
      double sum = 0.0, shift = 0.0;
      for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
        sum += std::exp(x[i]);
        shift += given_y[i] * dy[i];
      }
      for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
        y.push_back(std::exp(x[i]) / sum);
        dx.push_back(given_y[i] * (dy[i] - shift));
        magnitudes.push_back(given_y[i] * (std::fabs(dy[i]) + 2.0));
      }
    }
  }
  std::vector<double> y, dx, magnitudes;
};

// Half a unit of the storage, an exponential of 2^-22 (1 + 16) twice, and the sums' roundings.
constexpr double relative = 0x1p-16;

void check(int64_t columns, DType dtype, int64_t shift) {
  SCOPED_TRACE(concat(columns, " columns, ", dtype, ", shift ", shift));
  const Shape shape{rows, columns};
  const Values x = Values::uniform(shape, dtype, 1, -8.0, 8.0), dy = Values::uniform(shape, dtype, 2);
  const double least = dtype == DType::f16 ? 0x1p-25 : 0x1p-126;
  std::vector<Values> results;
  for_each_schedule([&] {
    OnGpu on_x(x, shift), on_dy(dy, shift), y = OnGpu::poisoned(shape, dtype, shift);
    launch(gpu_stream(), SoftmaxForward{.x = on_x.view(), .y = y.view()});
    OnGpu dx = OnGpu::poisoned(shape, dtype, shift);
    launch(gpu_stream(), SoftmaxBackward{.y = y.view(), .dy = on_dy.view(), .dx = dx.view()});
    const Reference reference(x, y.values(), dy, columns);
    expect_close(
        y.values(), [&](int64_t i) { return reference.y[static_cast<size_t>(i)]; },
        epsilon_of(dtype) / 2 + relative, least);
    const Values& actual = dx.values();
    for (int64_t i = 0; i < actual.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_NEAR(
          actual[i], reference.dx[at],
          epsilon_of(dtype) / 2 * std::fabs(reference.dx[at]) + relative * reference.magnitudes[at] + least);
    }
    // Runs in place.
    launch(gpu_stream(), SoftmaxForward{.x = on_x.view(), .y = on_x.view()});
    EXPECT_TRUE(on_x.values() == y.values());
    results.push_back(y.values());
    results.push_back(dx.values());
  });
  for (size_t i = 2; i < results.size(); ++i) EXPECT_TRUE(results[i] == results[i % 2]);
}

TEST(SoftmaxOnGpu, MatchesReferenceInEveryDtype) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t columns : widths) check(columns, dtype, 0);
  check(64, DType::bf16, 1);
  check(2056, DType::f32, 1);
}

TEST(SoftmaxOnGpu, MasksAndWhatIsNotFinite) {
  LOCKSTEP_NEEDS_GPU();
  Values x({4, 3});
  const double numbers[] = {0.0, -INFINITY, 0.0, -INFINITY, -INFINITY, -INFINITY,
                            0.0, NAN,       1.0, INFINITY,  0.0,       1.0};
  for (int64_t i = 0; i < 12; ++i) x.set(i, numbers[i]);
  for_each_schedule([&] {
    OnGpu on_x(x);
    launch(gpu_stream(), SoftmaxForward{.x = on_x.view(), .y = on_x.view()});
    const Values& y = on_x.values();
    EXPECT_EQ(y[0], 0.5);
    EXPECT_EQ(y[1], 0.0);
    EXPECT_EQ(y[2], 0.5);
    for (int64_t i = 3; i < 10; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  });
}

}  // namespace
}  // namespace lockstep::testing
