// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "lockstep/core/error.h"

namespace lockstep {

enum class DType : uint8_t { f32, f64, bf16, f16, i32 };

/// The upper half of an fp32, rounded to nearest even. Storage only: arithmetic is done in fp32.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits =
        static_cast<uint16_t>(is_nan ? (word >> 16) | 0x40u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// IEEE binary16, rounded to nearest even. Storage only: arithmetic is done in fp32.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  explicit float16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (word >> 16) & 0x8000u;
    const uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      bits = static_cast<uint16_t>(sign | 0x7e00u);
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more: infinity
      bits = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (magnitude >= 0x38800000u) {  // normal
      bits =
          static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
    } else {  // subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits of the mantissa
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
  }
  explicit operator float() const {
    // After the shift the exponent is 112 too small. The product corrects it, for subnormals as well.
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
    const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;  // infinities and NaN
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | special | sign);
  }
};

constexpr int64_t bytes(DType dtype) {
  if (dtype == DType::f64) return 8;
  return dtype == DType::bf16 || dtype == DType::f16 ? 2 : 4;
}

constexpr const char* name(DType dtype) {
  constexpr const char* names[] = {"f32", "f64", "bf16", "f16", "i32"};
  return names[static_cast<size_t>(dtype)];
}

/// Returns the name of a precision to compute in, as configurations and command lines have it.
constexpr const char* precision_name(DType precision) {
  return precision == DType::bf16 ? "bf16" : precision == DType::f16 ? "fp16" : "fp32";
}

/// Returns the precision of such a name. Throws Error for another one.
constexpr DType precision_called(std::string_view name) {
  for (const DType precision : {DType::f32, DType::bf16, DType::f16})
    if (name == precision_name(precision)) return precision;
  throw Error("there is no precision " + std::string(name));
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

template <class T>
inline constexpr DType dtype_of = DType{255};
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float16> = DType::f16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;

/// Calls `body.operator()<T>()`, where T is the type of dtype: float, double, bfloat16 or float16.
template <class Body>
decltype(auto) with_float_type(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body.template operator()<float>();
  if (dtype == DType::f64) return body.template operator()<double>();
  if (dtype == DType::bf16) return body.template operator()<bfloat16>();
  if (dtype == DType::f16) return body.template operator()<float16>();
  throw Error(concat("a floating-point tensor is needed, not ", dtype));
}

/// Calls `body.operator()<T>()` for kernels that compute in their storage type T: float or double.
template <class Body>
decltype(auto) with_compute_type(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body.template operator()<float>();
  if (dtype == DType::f64) return body.template operator()<double>();
  throw Error(concat("f32 or f64 is needed, not ", dtype));
}

}  // namespace lockstep
