// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "lockstep/kernels/cpu/gemm_vector.h"
#include "lockstep/kernels/cpu/map.h"

namespace lockstep {

/// Number of independent partial sums of a row sum. They fill two of the widest vectors, so that additions
/// overlap.
inline constexpr int64_t sum_lanes = 32;

/// Adds the upper half of the lanes to the lower half until one lane is left. This happens in registers,
/// since a loop over memory waits for each of its stores.
template <class T, size_t... half>
[[gnu::always_inline]] inline T sum_by_halves(
    const typename gemm::VectorOf<T, 2 * sizeof...(half)>::Type& lanes, std::index_sequence<half...>) {
  constexpr size_t count = sizeof...(half);
  if constexpr (count == 1)
    return lanes[0] + lanes[1];
  else
    return sum_by_halves<T>(
        gemm::shuffle<half...>(lanes, lanes) + gemm::shuffle<(count + half)...>(lanes, lanes),
        std::make_index_sequence<count / 2>{});
}

/// A number type of `count` contiguous values in registers. It is for loops whose order of additions is part
/// of the result, and for loops over several arrays.
template <class T, int64_t count = sum_lanes>
class Simd {
 public:
  Simd() = default;  ///< +0 in every lane

  /// Returns values(lane) in the lanes [0, used) and +0 in the others. The values go through an array,
  /// because compilers vectorise a loop over an array.
  template <class Values>
  [[gnu::always_inline]] static Simd of(const Values& values, int64_t used = count) {
    T array[count];
    if (used < count) std::fill_n(array, count, T(0));
    for (int64_t lane = 0; lane < used; ++lane) array[lane] = static_cast<T>(values(lane));
    return each([&](auto v) { return gemm::load<gemm::Vector<T>>(array + v * width); });
  }
  template <class S>
  [[gnu::always_inline]] static Simd load(const S* from, int64_t used = count) {
    return of([=](int64_t lane) { return from[lane]; }, used);
  }
  [[gnu::always_inline]] static Simd all(T value) {
    return each([&](auto) { return gemm::broadcast<T>(value); });
  }

  template <class S>
  [[gnu::always_inline]] void store(S* to, int64_t used = count) const {
    T array[count];
    gemm::unroll<vectors>([&](auto v) { gemm::store(array + v * width, parts_[v]); });
    for (int64_t lane = 0; lane < used; ++lane) to[lane] = static_cast<S>(array[lane]);
  }

  [[gnu::always_inline]] friend Simd operator+(const Simd& a, const Simd& b) {
    return each([&](auto v) { return a.parts_[v] + b.parts_[v]; });
  }
  [[gnu::always_inline]] friend Simd operator-(const Simd& a, const Simd& b) {
    return each([&](auto v) { return a.parts_[v] - b.parts_[v]; });
  }
  [[gnu::always_inline]] friend Simd operator*(const Simd& a, const Simd& b) {
    return each([&](auto v) { return a.parts_[v] * b.parts_[v]; });
  }
  /// Returns a * b + c, rounded once.
  [[gnu::always_inline]] friend Simd fma(const Simd& a, const Simd& b, const Simd& c) {
    return each([&](auto v) { return gemm::fused_multiply_add<T>(a.parts_[v], b.parts_[v], c.parts_[v]); });
  }

  /// Returns the larger value of each lane, and that of b if a is NaN.
  [[gnu::always_inline]] friend Simd larger(const Simd& a, const Simd& b) {
    return each([&](auto v) { return a.parts_[v] > b.parts_[v] ? a.parts_[v] : b.parts_[v]; });
  }

  /// Returns the sum of all lanes, added by a fixed tree.
  [[gnu::always_inline]] T total() const {
    typename gemm::VectorOf<T, count>::Type all;
    std::memcpy(&all, parts_, sizeof(all));
    return sum_by_halves<T>(all, std::make_index_sequence<count / 2>{});
  }

 private:
  static constexpr size_t width = gemm::vector_lanes<T>, vectors = count / width;

  template <class Part>
  [[gnu::always_inline]] static Simd each(const Part& part) {
    Simd lanes;
    gemm::unroll<vectors>([&](auto v) { lanes.parts_[v] = part(v); });
    return lanes;
  }

  gemm::Vector<T> parts_[vectors] = {};
};

/// Returns the sum in T of `size` terms. Lane i % 32 adds its terms in order, then a fixed tree adds the
/// lanes. The order depends only on the size. terms(first, used) returns the lanes of terms [first, first +
/// used) and +0 in the others. Lanes begin at +0, so none is ever -0 and adding zeros does not change them.
template <class T, class Terms>
[[gnu::always_inline]] inline T lane_sum_of(int64_t size, const Terms& terms) {
  Simd<T> sum;
  for_each_piece<sum_lanes>(
      size, [&](int64_t first, int64_t used)
                __attribute__((always_inline)) { sum = sum + terms(first, used); });
  return sum.total();
}

/// Returns the sum of term(i) for i in [0, size), in the order of lane_sum_of().
template <class T, class Term>
[[gnu::always_inline]] inline T lane_sum(int64_t size, const Term& term) {
  return lane_sum_of<T>(
      size, [&](int64_t i, int64_t used) __attribute__((always_inline)) {
        return Simd<T>::of([&](int64_t lane) { return term(i + lane); }, used);
      });
}

/// Returns the largest of values[0, count) in T. Skips NaNs. Returns -infinity if there is no other value.
template <class T, class X>
T lane_max(int64_t count, const X* values) {
  constexpr T none = -std::numeric_limits<T>::infinity();
  Simd<T> lanes = Simd<T>::all(none);
  int64_t i = 0;
  for (; i + sum_lanes <= count; i += sum_lanes) lanes = larger(Simd<T>::load(values + i), lanes);
  T each[sum_lanes];
  lanes.store(each);
  for (int64_t lane = 0; i + lane < count; ++lane)
    each[lane] = std::max(each[lane], static_cast<T>(values[i + lane]));
  return *std::max_element(each, each + sum_lanes);
}

}  // namespace lockstep
