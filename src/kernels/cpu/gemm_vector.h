// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/cpu/gemm.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // no vector crosses a call: all that takes one is inlined

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

/// The given lanes of `a` followed by `b`.
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

/// a * b + c, rounded once.
template <class T>
[[gnu::always_inline]] inline Vector<T> fused_multiply_add(Vector<T> a, Vector<T> b, Vector<T> c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return _mm512_fmadd_ps(a, b, c);
  if constexpr (sizeof(T) == 8) return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (sizeof(T) == 4) return _mm256_fmadd_ps(a, b, c);
  if constexpr (sizeof(T) == 8) return _mm256_fmadd_pd(a, b, c);
#else
  for (int64_t i = 0; i < vector_lanes<T>; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
#endif
}

/// Every lane is x: x - 0 is x for every x.
template <class T>
[[gnu::always_inline]] inline Vector<T> broadcast(T x) {
  return x - Vector<T>{};
}

/// Nothing that was read before is read again. With 16 registers gcc else gives each use of a vector a load
/// of its own, and more than two a cycle hold up what multiplies.
[[gnu::always_inline]] inline void end_loads() {
  if constexpr (vector_bytes < 64) std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// Asks for the cache line there, into the second level. Reads nothing, so that the place may lie behind the
/// matrix.
[[gnu::always_inline]] inline void prefetch(const void* first, int64_t bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address for the processor alone
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(first) + bytes), 0, 2);
}

// The index is a constant in every copy of the body: accumulators stay in registers.
template <class Body, size_t... indices>
[[gnu::always_inline]] inline void unroll(Body&& body, std::index_sequence<indices...>) {
  (body(std::integral_constant<size_t, indices>{}), ...);
}
template <size_t count, class Body>
[[gnu::always_inline]] inline void unroll(Body&& body) {
  unroll(body, std::make_index_sequence<count>{});
}

}  // namespace lockstep::gemm
