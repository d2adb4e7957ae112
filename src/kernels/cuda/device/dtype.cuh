// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/core/dtype.h"
#include "lockstep/core/error.h"
#include "lockstep/kernels/cuda/device/intrinsics.cuh"

namespace lockstep::cuda {

/// Calls body.operator()<T>() with the type that kernels see: float, __nv_bfloat16 or __half. Throws Error
/// for f64, which runs on the CPU only, and for i32.
template <class Body>
decltype(auto) with_device_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<__nv_bfloat16>();
    case DType::f16:
      return body.template operator()<__half>();
    case DType::f64:
    case DType::i32:
      break;
  }
  if (dtype == DType::i32) throw Error("a floating-point tensor is needed, not i32");
  throw Error(concat(dtype, " runs on the CPU only: f32, bf16 or f16 is needed on a GPU"));
}

LOCKSTEP_DEVICE float to_float(float x) { return x; }
LOCKSTEP_DEVICE float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
LOCKSTEP_DEVICE float to_float(__half x) { return __half2float(x); }

/// Rounds to nearest even.
template <class T>
LOCKSTEP_DEVICE T from_float(float x);
template <>
LOCKSTEP_DEVICE float from_float<float>(float x) {
  return x;
}
template <>
LOCKSTEP_DEVICE __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
LOCKSTEP_DEVICE __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

/// Packs two neighbours into one 32-bit word, with the first in the low half.
template <class T>
LOCKSTEP_DEVICE uint32_t pack_pair(float first, float second);
template <>
LOCKSTEP_DEVICE uint32_t pack_pair<__nv_bfloat16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
LOCKSTEP_DEVICE uint32_t pack_pair<__half>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

LOCKSTEP_DEVICE uint32_t bits_of(float x) { return __float_as_uint(x); }
LOCKSTEP_DEVICE uint32_t bits_of(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }
LOCKSTEP_DEVICE uint32_t bits_of(__half x) { return __half_as_ushort(x); }

/// Returns the number in the low half of a packed pair. high_to_float returns the other one.
template <class T>
LOCKSTEP_DEVICE float low_to_float(uint32_t word) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __uint_as_float(word << 16);
  else
    return to_float(T(__half_raw{static_cast<uint16_t>(word)}));
}
template <class T>
LOCKSTEP_DEVICE float high_to_float(uint32_t word) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __uint_as_float(word & 0xffff0000u);
  else
    return low_to_float<T>(word >> 16);
}

}  // namespace lockstep::cuda
