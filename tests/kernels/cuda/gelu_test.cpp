// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/gelu.h"

#include "kernels/values.h"
#include "support/cuda.h"

namespace lockstep::testing {
namespace {

double tanh_form(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double erf_form(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }

double tanh_slope(double x) {
  const double inner = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
  const double inner_slope = std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
  const double t = std::tanh(inner);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope;
}
double erf_slope(double x) {
  return 0.5 * (1.0 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI);
}

/// Expects every element within half a unit of the storage plus the error of the instructions. Two of these
/// are approximate, and the exponential errs by 2^-22 (1 + |argument|). Together they make about 2^-20 of the
/// result, or 2^-21 where terms cancel.
void expect_near(const DeviceArray& actual, const std::vector<double>& expected, DType dtype) {
  const auto values = actual.values();
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], (epsilon_of(dtype) / 2 + 0x1p-20) * std::fabs(expected[i]) + 0x1p-21)
        << "element " << i << " of " << dtype;
}

TEST(GeluOnGpu, BothFormsAndTheirSlopesMatchReference) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t size : {1, 515, 8192})
      for (const Gelu form : {Gelu::tanh, Gelu::erf}) {
        const auto x = normal_values(size, 1, dtype, 2.0), dy = normal_values(size, 2, dtype);
        std::vector<double> y(x.size()), dx(x.size());
        for (size_t i = 0; i < x.size(); ++i) {
          y[i] = form == Gelu::tanh ? tanh_form(x[i]) : erf_form(x[i]);
          dx[i] = dy[i] * (form == Gelu::tanh ? tanh_slope(x[i]) : erf_slope(x[i]));
        }
        const DeviceArray device_x(x, {size}, dtype);
        std::vector<uint8_t> bits;
        for_each_schedule([&] {
          const DeviceArray device_y({size}, dtype), device_dy(dy, {size}, dtype), device_dx({size}, dtype);
          launch(gpu_stream(), GeluForward{.x = device_x.view(), .y = device_y.view(), .form = form});
          expect_near(device_y, y, dtype);
          launch(gpu_stream(),
                 GeluBackward{
                     .x = device_x.view(), .dy = device_dy.view(), .dx = device_dx.view(), .form = form});
          expect_near(device_dx, dx, dtype);
          launch(gpu_stream(),
                 GeluBackward{
                     .x = device_x.view(), .dy = device_dy.view(), .dx = device_dy.view(), .form = form});
          EXPECT_EQ(device_dy.bits(), device_dx.bits());
          if (!bits.empty()) {
            EXPECT_EQ(device_dx.bits(), bits);
          }
          bits = device_dx.bits();
        });
      }
}

TEST(GeluOnGpu, FarFromZeroItIsTheIdentityOrZero) {
  LOCKSTEP_NEEDS_GPU();
  const DeviceArray x({50.0, -50.0, 1e4, -1e4}, {4}, DType::f32), dy({1, 1, 1, 1}, {4}, DType::f32);
  for (const Gelu form : {Gelu::tanh, Gelu::erf}) {
    const DeviceArray y({4}, DType::f32), dx({4}, DType::f32);
    launch(gpu_stream(), GeluForward{.x = x.view(), .y = y.view(), .form = form});
    EXPECT_EQ(y.values(), (std::vector<double>{50.0, 0.0, 1e4, 0.0}));
    launch(gpu_stream(), GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view(), .form = form});
    EXPECT_EQ(dx.values(), (std::vector<double>{1.0, 0.0, 1.0, 0.0}));
  }
}

}  // namespace
}  // namespace lockstep::testing
