// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lockstep/kernels/cpu/flush_subnormals.h"
#include "lockstep/kernels/cpu/gemm.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // no vector crosses a call: functions that take one are inlined

namespace lockstep::gemm {

template <class T, int64_t lanes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(lanes * sizeof(T))));
};
template <class T>
using Vector = typename VectorOf<T, vector_lanes<T>>::Type;

template <class V, class T>
[[gnu::always_inline]] inline V load(const T* source) {
  V vector;
  std::memcpy(&vector, source, sizeof(V));
  return vector;
}

template <class T, class V>
[[gnu::always_inline]] inline void store(T* target, const V& vector) {
  std::memcpy(target, &vector, sizeof(V));
}

/// Returns the lanes with these indices of `a` followed by `b`.
template <size_t... lanes, class V>
[[gnu::always_inline]] inline auto shuffle(const V& a, const V& b) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, lanes...);
#else  // GCC 11
  using T = std::remove_cvref_t<decltype(a[0])>;
  constexpr size_t count = sizeof(V) / sizeof(T);
  using Result = typename VectorOf<T, sizeof...(lanes)>::Type;
  if constexpr (sizeof...(lanes) == count) {
    using Index =
        std::conditional_t<sizeof(T) == 8, int64_t, std::conditional_t<sizeof(T) == 4, int32_t, int16_t>>;
    return __builtin_shuffle(a, b, typename VectorOf<Index, count>::Type{Index(lanes)...});
  } else {
    return Result{(lanes < count ? a[lanes % count] : b[lanes % count])...};
  }
#endif
}

/// Returns a * b + c of floats, rounded once, on a processor without an instruction for it. The product is
/// exact in double. Its sum with c is rounded to odd (Boldo & Melquiond 2008): if it is not exact, to the
/// neighbour with an odd last digit. Rounding this to float gives the result of a single rounding.
template <class V>
[[gnu::always_inline]] inline V multiply_add_in_double(const V& a, const V& b, const V& c) {
  constexpr int64_t lanes = sizeof(V) / sizeof(float);
  using Wide = typename VectorOf<double, lanes>::Type;
  using Words = typename VectorOf<int64_t, lanes>::Type;
  const Wide product = __builtin_convertvector(a, Wide) * __builtin_convertvector(b, Wide);
  const Wide addend = __builtin_convertvector(c, Wide);
  const Wide sum = product + addend;
  const Wide part = sum - product;
  const Wide error = (product - (sum - part)) + (addend - part);
  const Words is_inexact = (error < 0.0) | (error > 0.0);  // false for NaN: then the sum is NaN or infinite
  const Words is_towards_zero = (error < 0.0) ^ (sum < 0.0);
  Words bits;
  std::memcpy(&bits, &sum, sizeof(bits));
  const Words is_even = (bits & 1) - 1;
  bits += (is_towards_zero | 1) & is_inexact & is_even;
  Wide odd;
  std::memcpy(&odd, &bits, sizeof(odd));
  return __builtin_convertvector(odd, V);
}

/// Returns a * b + c, rounded once.
template <class T>
[[gnu::always_inline]] inline Vector<T> fused_multiply_add(Vector<T> a, Vector<T> b, Vector<T> c) {
  constexpr bool is_float = sizeof(T) == 4;
#if !defined(__SSE2__)
  if (is_float && is_flushing_subnormals) {
    for (int64_t i = 0; i < vector_lanes<T>; ++i) c[i] = flushed_multiply_add(a[i], b[i], c[i]);
    return c;
  }
#endif
#if defined(__AVX512F__)
  if constexpr (is_float && vector_bytes == 64) return _mm512_fmadd_ps(a, b, c);
  if constexpr (!is_float && vector_bytes == 64) return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (is_float && vector_bytes == 32) return _mm256_fmadd_ps(a, b, c);
  if constexpr (!is_float && vector_bytes == 32) return _mm256_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  if constexpr (is_float && vector_bytes == 16) return vfmaq_f32(c, a, b);
  if constexpr (!is_float && vector_bytes == 16) return vfmaq_f64(c, a, b);
#elif defined(__SSE2__) && !defined(__FMA__)
  if constexpr (is_float) return multiply_add_in_double(a, b, c);
#endif
  for (int64_t i = 0; i < vector_lanes<T>; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
}

/// Returns a vector with x in every lane. The result is exact: x - 0 is x for every x.
template <class T>
[[gnu::always_inline]] inline Vector<T> broadcast(T x) {
  return x - Vector<T>{};
}

/// Returns the sum of two sums of products.
template <class T>
[[gnu::always_inline]] inline Vector<T> add(const Vector<T>& a, const Vector<T>& b) {
#if !defined(__SSE2__)
  if (sizeof(T) == 4 && is_flushing_subnormals) return fused_multiply_add<T>(a, broadcast(T{1}), b);
#endif
  return a + b;
}

/// Keeps the compiler from reading earlier values again. With 16 registers gcc would otherwise load a vector
/// for each use of it. More than two loads per cycle delay the multiplications.
[[gnu::always_inline]] inline void end_loads() {
  if constexpr (vector_bytes < 64) std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// Prefetches the cache line at first + bytes into the second level. It reads nothing, so the address may be
/// beyond the matrix.
[[gnu::always_inline]] inline void prefetch(const void* first, int64_t bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address for the processor alone
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(first) + bytes), 0, 2);
}

// Unrolls a loop. The index is a constant in every copy of the body, so accumulators stay in registers.
template <class Body, size_t... indices>
[[gnu::always_inline]] inline void unroll(Body&& body, std::index_sequence<indices...>) {
  (body(std::integral_constant<size_t, indices>{}), ...);
}
template <size_t count, class Body>
[[gnu::always_inline]] inline void unroll(Body&& body) {
  unroll(body, std::make_index_sequence<count>{});
}

}  // namespace lockstep::gemm
