// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <gtest/gtest.h>

#include "lockstep/kernels/cpu/gemm_vector.h"
#include "lockstep/kernels/random.h"

namespace lockstep {
namespace {

using Lanes = gemm::VectorOf<float, 4>::Type;

bool are_same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

/// Returns a float with random digits and sign and an exponent in [least, least + count).
float random_float(uint32_t word, uint32_t exponent_word, int least, uint32_t count) {
  const float digits = 1.0f + static_cast<float>(word >> 9) * 0x1p-23f;
  return std::ldexp(word & 1 ? -digits : digits, least + static_cast<int>(exponent_word % count));
}

void expect_same_as_fma(float a, float b, float c) {
  const Lanes result =
      gemm::multiply_add_in_double(Lanes{a, b, -a, a}, Lanes{b, a, b, b}, Lanes{c, c, c, -c});
  EXPECT_TRUE(are_same(result[0], std::fma(a, b, c))) << a << " " << b << " " << c;
  EXPECT_TRUE(are_same(result[1], std::fma(b, a, c))) << a << " " << b << " " << c;
  EXPECT_TRUE(are_same(result[2], std::fma(-a, b, c))) << a << " " << b << " " << c;
  EXPECT_TRUE(are_same(result[3], std::fma(a, b, -c))) << a << " " << b << " " << c;
}

TEST(MultiplyAddInDouble, IsFusedForAllFloats) {
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    const auto words = philox(1, {i, 0, 0, 0});
    // The three words are arbitrary floats, mostly with distant exponents. Subnormal numbers are among them.
    expect_same_as_fma(std::bit_cast<float>(words[0]), std::bit_cast<float>(words[1]),
                       std::bit_cast<float>(words[2]));
  }
  for (const float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, 0x1.fffffep127f})
    for (const float other : {0.0f, 1.0f, -INFINITY, 0x1p-140f, 0x1p100f})
      for (const float addend : {0.0f, -0.0f, INFINITY, -1.0f, 0x1p-149f})
        expect_same_as_fma(special, other, addend);
}

TEST(MultiplyAddInDouble, IsRoundedOnceBesideTheMiddleOfTwoFloats) {
  for (uint32_t i = 0; i < 200'000; ++i) {
    const auto words = philox(2, {i, 0, 0, 0});
    // The product is half a unit in the last place of c, apart from 2^-46 or 2^-23 of it.
    const float c = random_float(words[0], words[1], -3, 6);
    const float half = std::ldexp(1.0f, std::ilogb(c) - 24);
    const float more = 1.0f + 0x1p-23f, less = 1.0f - 0x1p-23f;
    expect_same_as_fma(half * more, less, c);
    expect_same_as_fma(half, words[2] & 1 ? more : less, c);
    expect_same_as_fma(half, 1.0f, c);
    // The result is subnormal.
    expect_same_as_fma(std::ldexp(more, -75), std::ldexp(less, -75),
                       random_float(words[2], words[3], -149, 30));
  }
}

// x86-64's mode that flushes subnormal numbers to zero and flushed_multiply_add agree. Other processors have
// no such mode and call that function.
TEST(FlushSubnormals, IsWhatFlushedMultiplyAddComputes) {
  using Vector = gemm::Vector<float>;
  const auto bf16 = [](float x) { return static_cast<float>(bfloat16(x)); };
  // A compiler may move the arithmetic of registers past a change of the mode, but no call of an unknown
  // function. Kernels load and store in between.
  void (*volatile compute)(Vector&, float, float, float) = [](Vector& result, float a, float b, float c) {
    result = gemm::fused_multiply_add<float>(Vector{} + a, Vector{} + b, Vector{} + c);
  };
  int64_t flushed = 0, least = 0;
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    const auto words = philox(3, {i, 0, 0, 0}), more = philox(4, {i, 0, 0, 0});
    const int least_exponent = i % 4 == 0 ? -76 : -66;
    const float a = bf16(random_float(words[0], more[0], least_exponent, 3)),
                b = bf16(random_float(words[1], more[1], least_exponent, 6));
    float c = random_float(words[2], more[2], -128, 4);
    // Half of the sums are near the least normal number. A quarter are within its last place.
    if (i % 2 == 0) c = bf16(static_cast<float>(0x1p-126 - static_cast<double>(a) * b));
    if (i % 4 == 0) c = std::copysign(0x1p-126f + 0x1p-149f * static_cast<float>(words[3] % 3), c);
    Vector result{};
    {
      const FlushSubnormals<bfloat16> flush;
      compute(result, a, b, c);
    }
    const float expected = flushed_multiply_add(a, b, c);
    ASSERT_TRUE(are_same(result[0], expected))
        << a << " * " << b << " + " << c << " is " << result[0] << ", not " << expected;
    flushed += expected == 0.0f;
    least += std::fabs(expected) == 0x1p-126f;
  }
  EXPECT_GT(flushed, 1000);
  EXPECT_GT(least, 1000);
}

}  // namespace
}  // namespace lockstep
