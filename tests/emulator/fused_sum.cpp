// SPDX-License-Identifier: Apache-2.0
#include "emulator/fused_sum.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>

namespace emulator {
namespace {

constexpr int fp32_fraction = 23, fp32_smallest = -126, fp32_largest = 127;

/// Returns x * 2^places, cut toward zero.
int64_t scaled(int64_t x, int places) {
  if (places >= 0) return x << places;
  const int64_t magnitude = places < -62 ? 0 : std::abs(x) >> -places;
  return x < 0 ? -magnitude : magnitude;
}

/// Returns x * 2^unit, rounded toward zero to fp32. Numbers beyond fp32's range become infinite.
float to_float(int64_t x, int unit) {
  if (x == 0) return 0.0f;
  const auto magnitude = static_cast<uint64_t>(std::abs(x));
  const int exponent = std::bit_width(magnitude) - 1 + unit;
  const uint32_t sign = x < 0 ? 0x80000000u : 0u;
  if (exponent > fp32_largest) return std::bit_cast<float>(sign | 0x7f800000u);
  const int last_place = std::max(exponent, fp32_smallest) - fp32_fraction;
  const auto significand = static_cast<uint32_t>(scaled(static_cast<int64_t>(magnitude), unit - last_place));
  // A normal significand has its leading bit at 2^23, which raises the exponent field by one.
  const auto field = static_cast<uint32_t>(std::max(exponent, fp32_smallest) - fp32_smallest);
  return std::bit_cast<float>(sign | ((field << fp32_fraction) + significand));
}

}  // namespace

TensorCore tensor_core_of(int major) {
  return major <= 8 ? TensorCore{.terms = 8, .fraction_bits = 24}
                    : TensorCore{.terms = 16, .fraction_bits = 25};
}

Term term_of(float x, int smallest_exponent) {
  const auto word = std::bit_cast<uint32_t>(x);
  const int field = static_cast<int>(word >> fp32_fraction & 0xffu);
  auto significand = static_cast<int32_t>(word & 0x7fffffu);
  int exponent = fp32_smallest;
  if (field > 0) {
    significand |= 1 << fp32_fraction;
    exponent = field - 1 + fp32_smallest;
  }
  const int unit = exponent - fp32_fraction;
  // A product of two 16-bit numbers fits into 32 bits without the zeros at the end of their significands.
  const int zeros = significand == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(significand));
  return {.significand = (word >> 31 ? -significand : significand) / (1 << zeros),
          .unit = static_cast<int16_t>(unit + zeros),
          .exponent = static_cast<int16_t>(std::max(exponent, smallest_exponent))};
}

float fused_sum(std::span<const Term> terms, int fraction_bits) {
  int largest = std::numeric_limits<int>::min();
  for (const Term& term : terms)
    if (term.significand != 0) largest = std::max(largest, int{term.exponent});
  if (largest == std::numeric_limits<int>::min()) return 0.0f;
  const int unit = largest - fraction_bits;
  int64_t sum = 0;
  for (const Term& term : terms) sum += scaled(term.significand, term.unit - unit);
  return to_float(sum, unit);
}

}  // namespace emulator
