// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/cpu/gemm_vector.h"

namespace lockstep {

/// Independent partial sums of a row sum: enough for two of the widest vectors, so that additions overlap.
inline constexpr int sum_lanes = 32;

/// The upper half of the lanes is added to the lower one until one is left. In registers: a loop over memory
/// waits for each of its stores.
template <class T, size_t... half>
[[gnu::always_inline]] inline T sum_by_halves(
    const typename gemm::VectorOf<T, 2 * sizeof...(half)>::Type& lanes, std::index_sequence<half...>) {
  constexpr size_t count = sizeof...(half);
  if constexpr (count == 1)
    return lanes[0] + lanes[1];
  else
    return sum_by_halves<T>(__builtin_shufflevector(lanes, lanes, half...) +
                                __builtin_shufflevector(lanes, lanes, (count + half)...),
                            std::make_index_sequence<count / 2>{});
}

/// The sum of term(i) for i in [0, count) in T: lane i % 32 adds its terms in order, then the lanes are added
/// by a fixed tree. The order depends on count alone, and lanes are what the compiler turns into vectors.
template <class T, class Term>
T lane_sum(int64_t count, Term term) {
  T lanes[sum_lanes] = {};
  int64_t i = 0;
  for (; i + sum_lanes <= count; i += sum_lanes)
    for (int lane = 0; lane < sum_lanes; ++lane) lanes[lane] += static_cast<T>(term(i + lane));
  for (int lane = 0; i + lane < count; ++lane) lanes[lane] += static_cast<T>(term(i + lane));
  const auto all = gemm::load<typename gemm::VectorOf<T, sum_lanes>::Type>(lanes);
  return sum_by_halves<T>(all, std::make_index_sequence<sum_lanes / 2>{});
}

/// The largest of values[0, count) in T; NaNs are passed over. -infinity if there is none.
template <class T, class X>
T lane_max(int64_t count, const X* values) {
  T lanes[sum_lanes];
  for (T& lane : lanes) lane = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (; i + sum_lanes <= count; i += sum_lanes)
    for (int lane = 0; lane < sum_lanes; ++lane) {
      const T value = static_cast<T>(values[i + lane]);
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  for (; i < count; ++i) lanes[0] = std::max(lanes[0], static_cast<T>(values[i]));
  return *std::max_element(lanes, lanes + sum_lanes);
}

}  // namespace lockstep
