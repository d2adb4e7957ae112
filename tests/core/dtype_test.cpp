// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/dtype.h"

#include <gtest/gtest.h>
#include <limits>

namespace lockstep {
namespace {

template <class T>
struct Layout;
template <>
struct Layout<bfloat16> {
  static constexpr int mantissa_bits = 7, bias = 127;
};
template <>
struct Layout<float16> {
  static constexpr int mantissa_bits = 10, bias = 15;
};

template <class T>
class SixteenBits : public testing::Test {
 protected:
  static constexpr int mantissa_bits = Layout<T>::mantissa_bits;
  /// The bit pattern of infinity. It is also the number of finite patterns of one sign.
  static constexpr uint32_t infinity = 0x8000u - (1u << mantissa_bits);

  static T from_bits(uint32_t bits) {
    T value;
    value.bits = static_cast<uint16_t>(bits);
    return value;
  }

  /// Returns the value of a finite bit pattern, by the definition of the format.
  static double defined_value(uint32_t bits) {
    const int exponent = static_cast<int>((bits & 0x7fffu) >> mantissa_bits);
    const double fraction = std::ldexp(bits & ((1u << mantissa_bits) - 1), -mantissa_bits);
    const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - Layout<T>::bias)
                                           : std::ldexp(1.0 + fraction, exponent - Layout<T>::bias);
    return bits & 0x8000u ? -magnitude : magnitude;
  }

  static uint32_t rounded(double value) { return T(static_cast<float>(value)).bits; }
};

using Types = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(SixteenBits, Types);

TYPED_TEST(SixteenBits, EveryPatternMeansWhatTheFormatSays) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = static_cast<float>(this->from_bits(bits));
    const uint32_t magnitude = bits & 0x7fffu;
    ASSERT_EQ(std::signbit(value), bits >= 0x8000u) << bits;
    if (magnitude < this->infinity) {
      ASSERT_EQ(value, this->defined_value(bits)) << bits;
    } else {
      ASSERT_EQ(std::isinf(value), magnitude == this->infinity) << bits;
      ASSERT_EQ(std::isnan(value), magnitude > this->infinity) << bits;
    }
  }
}

TYPED_TEST(SixteenBits, EveryPatternSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const TypeParam back(static_cast<float>(this->from_bits(bits)));
    if ((bits & 0x7fffu) <= this->infinity) {
      ASSERT_EQ(back.bits, bits);
    } else {
      ASSERT_TRUE(std::isnan(static_cast<float>(back))) << bits;
      ASSERT_EQ(back.bits & 0x8000u, bits & 0x8000u);
    }
  }
}

// A value between two neighbours rounds to the nearer one. The middle rounds to the even one. It has one more
// bit than the neighbours, so fp32 represents it and the values next to it.
TYPED_TEST(SixteenBits, RoundsToNearestEvenBetweenAllNeighbours) {
  for (uint32_t low = 0; low + 1 < this->infinity; ++low) {
    const double below = this->defined_value(low), above = this->defined_value(low + 1);
    const auto middle = static_cast<float>((below + above) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      const uint32_t sign_bit = sign < 0 ? 0x8000u : 0u;
      ASSERT_EQ(this->rounded(sign * middle), sign_bit | (low + (low & 1u))) << low;
      ASSERT_EQ(this->rounded(sign * std::nextafter(middle, 0.0f)), sign_bit | low) << low;
      ASSERT_EQ(this->rounded(sign * std::nextafter(middle, std::numeric_limits<float>::infinity())),
                sign_bit | (low + 1))
          << low;
    }
  }
}

TYPED_TEST(SixteenBits, WhatIsTooLargeBecomesInfinity) {
  const double largest = this->defined_value(this->infinity - 1);
  const double step = largest - this->defined_value(this->infinity - 2);
  const auto limit = static_cast<float>(largest + step / 2);
  EXPECT_EQ(this->rounded(std::nextafter(limit, 0.0f)), this->infinity - 1);
  EXPECT_EQ(this->rounded(limit), this->infinity);
  EXPECT_EQ(this->rounded(-limit), 0x8000u | this->infinity);
  EXPECT_EQ(this->rounded(std::numeric_limits<float>::infinity()), this->infinity);
}

TEST(DType, NamesSizesAndTypesBelongTogether) {
  EXPECT_EQ(concat(DType::f32, " ", DType::f64, " ", DType::bf16, " ", DType::f16, " ", DType::i32),
            "f32 f64 bf16 f16 i32");
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    EXPECT_EQ(with_float_type(dtype, []<class T>() { return dtype_of<T>; }), dtype);
    EXPECT_EQ(with_float_type(dtype, []<class T>() { return static_cast<int64_t>(sizeof(T)); }),
              bytes(dtype));
  }
  EXPECT_EQ(bytes(DType::i32), 4);
}

TEST(DType, DispatchRefusesWhatItCannotCompute) {
  const auto size = []<class T>() { return sizeof(T); };
  EXPECT_THROW(with_float_type(DType::i32, size), Error);
  EXPECT_THROW(with_compute_type(DType::bf16, size), Error);
  EXPECT_EQ(with_compute_type(DType::f64, size), 8U);
}

}  // namespace
}  // namespace lockstep
