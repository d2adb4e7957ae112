// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by the processor's own unit, held against what Intel's manual says that it computes.
#include <array>
#include <cmath>

#include "core/processor.h"
#include "kernels/matmul.h"
#include "kernels/values.h"

namespace lockstep::testing {
namespace {

class Bf16Unit : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_unit()) GTEST_SKIP() << "this processor has no unit for products of bf16";
  }
};

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

/// Of every 32 of depth, even and odd elements are summed up by one chain of fused multiply-adds each; both
/// together are added to the sum.
float sum_of(const Values& a, const Values& b, int64_t first_of_a, int64_t step_of_a, int64_t first_of_b,
             int64_t step_of_b, int64_t depth) {
  float sum = 0;
  for (int64_t begin = 0; begin < depth; begin += 32) {
    std::array<float, 2> chains{};
    for (int64_t d = begin; d < std::min(begin + 32, depth); ++d)
      chains[d % 2] =
          flushed(std::fma(flushed(static_cast<float>(a[first_of_a + d * step_of_a])),
                           flushed(static_cast<float>(b[first_of_b + d * step_of_b])), chains[d % 2]));
    sum = flushed(sum + flushed(chains[0] + chains[1]));
  }
  return sum;
}

// Less than a register, several tiles with rests, several blocks of rows, groups of depth and stripes.
constexpr std::array<std::array<int64_t, 3>, 7> products = {
    {{1, 1, 1}, {3, 70, 65}, {32, 32, 32}, {49, 300, 130}, {100, 255, 129}, {33, 770, 17}, {900, 800, 33}}};

TEST_F(Bf16Unit, EverySumIsOfTwoChainsOfEveryThirtyTwo) {
  for (const auto& [m, k, n] : products)
    for (const auto [of_a, of_b] : {std::array{false, false}, {false, true}, {true, false}, {true, true}}) {
      SCOPED_TRACE(concat(m, " x ", k, " x ", n, of_a ? " a^T" : "", of_b ? " b^T" : ""));
      Values a = Values::uniform(of_a ? Shape{k, m} : Shape{m, k}, DType::bf16, 1);
      Values b = Values::uniform(of_b ? Shape{n, k} : Shape{k, n}, DType::bf16, 2);
      Values c({m, n});
      const MatMul kernel{
          .a = a.view(), .b = b.view(), .c = c.view(), .transpose_a = of_a, .transpose_b = of_b};
      launch_on(1, kernel);
      const int64_t step = m > 100 ? 7 : 1;
      for (int64_t i = 0; i < m; i += step)
        for (int64_t j = 0; j < n; ++j)
          ASSERT_EQ(c[i * n + j],
                    sum_of(a, b, of_a ? i : i * k, of_a ? m : 1, of_b ? j * k : j, of_b ? 1 : n, k))
              << i << ", " << j;
      const Values alone = c;
      for (const int threads : {2, 3}) {
        launch_on(threads, kernel);
        ASSERT_EQ(c, alone) << threads << " threads";
      }
    }
}

TEST_F(Bf16Unit, TakesSubnormalNumbersForZeroAndKeepsInfinities) {
  Values a({1, 2}, DType::bf16), b({2, 1}, DType::bf16), c({1, 1});
  const auto product = [&](double a0, double a1, double b0, double b1) {
    a.set(0, a0), a.set(1, a1), b.set(0, b0), b.set(1, b1);
    launch_on(1, MatMul{.a = a.view(), .b = b.view(), .c = c.view()});
    return c[0];
  };
  EXPECT_EQ(product(0x1p-130, 1, 0x1p100, 3), 3);
  EXPECT_EQ(product(0x1p-100, 0, 0x1p-30, 0), 0);
  EXPECT_EQ(product(INFINITY, 1, 2, 3), INFINITY);
  EXPECT_TRUE(std::isnan(product(INFINITY, 1, 0, 3)));
  EXPECT_TRUE(std::isnan(product(NAN, 1, 0, 3)));
}

}  // namespace
}  // namespace lockstep::testing
