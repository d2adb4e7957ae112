// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "emulator/toy.h"
#include "lockstep/kernels/cuda/device/math.cuh"

namespace emulator {
namespace {

using namespace lockstep::cuda;

/// Computes the elementary functions of kernels in one form, five results for each x.
template <bool exact>
__global__ void elementary(const float* x, float* y) {
  const int i = static_cast<int>(threadIdx.x);
  y[5 * i] = fast_exp2<exact>(x[i]);
  y[5 * i + 1] = fast_exp<exact>(x[i]);
  y[5 * i + 2] = fast_reciprocal<exact>(x[i]);
  y[5 * i + 3] = fast_erf<exact>(x[i]);
  y[5 * i + 4] = fast_tanh<exact>(x[i]);
}

template <bool exact>
std::vector<float> results(const std::vector<float>& x) {
  Array<float> from(x.size()), to(5 * x.size());
  std::memcpy(from.get(), x.data(), x.size() * sizeof(float));
  launch({.blocks = 1, .threads = static_cast<unsigned>(x.size())}, elementary<exact>, from.get(), to.get());
  return to.values();
}

/// The default build uses approximate instructions, and an exact build uses polynomials. Both forms have to
/// be near the functions, because only one of them is compiled into the kernels that other tests run.
TEST(Elementary, BothFormsAreNearTheFunctions) {
  std::vector<float> x;
  for (int i = 0; i < 512; ++i) x.push_back(0.17f * static_cast<float>(i - 256) + 0.003f);
  const auto expect_near = [&](const std::vector<float>& y) {
    for (size_t i = 0; i < x.size(); ++i) {
      const double value = x[i];
      const double expected[] = {std::exp2(value), std::exp(value), 1 / value, std::erf(value),
                                 std::tanh(value)};
      for (size_t f = 0; f < 5; ++f)
        ASSERT_NEAR(y[5 * i + f], expected[f], (1 + std::fabs(value)) * 0x1p-21 * std::fabs(expected[f]))
            << "function " << f << " of " << value;
    }
  };
  expect_near(results<false>(x));
  expect_near(results<true>(x));
}

TEST(Elementary, FarFromZeroBothFormsReachTheirLimits) {
  const float infinity = INFINITY;
  const std::vector<float> x = {-infinity, -200.0f, 127.0f};
  for (const std::vector<float>& y : {results<false>(x), results<true>(x)}) {
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[3], -1.0f);
    EXPECT_EQ(y[4], -1.0f);
    EXPECT_EQ(y[5], 0.0f);
    EXPECT_EQ(y[6], 0.0f);
    EXPECT_EQ(y[10], 0x1p127f);
    EXPECT_EQ(y[11], infinity);
  }
}

}  // namespace
}  // namespace emulator
