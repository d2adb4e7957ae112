// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "kernels/values.h"
#include "lockstep/kernels/extreme.h"

namespace lockstep::testing {

/// Returns whole numbers from -2 to 2, so that many are equal. Every 13th is NaN unless the dtype is i32.
inline Values few_numbers(const Shape& shape, DType dtype, uint64_t seed) {
  Values values = Values::uniform(shape, DType::f32, seed, -2.49, 2.49), numbers(shape, dtype);
  for (int64_t i = 0; i < values.size(); ++i)
    numbers.set(i, dtype != DType::i32 && i % 13 == 12 ? NAN : std::round(values[i]));
  return numbers;
}

inline void expect_same_number(double actual, double expected) {
  EXPECT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected)))
      << actual << " where " << expected << " is expected";
}

/// The extremes along the middle of [outer, count, inner] and their places, one comparison after another.
struct ExtremeReference {
  std::vector<double> values;
  std::vector<int64_t> places;

  ExtremeReference(const Values& x, int64_t outer, int64_t count, int64_t inner, Extreme extreme) {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        const auto at = [&](int64_t n) { return x[(o * count + n) * inner + i]; };
        int64_t best = 0;
        for (int64_t n = 1; n < count; ++n) {
          if (std::isnan(at(best))) break;
          const bool is_beyond = extreme == Extreme::largest ? at(n) > at(best) : at(n) < at(best);
          if (is_beyond || std::isnan(at(n))) best = n;
        }
        values.push_back(at(best));
        places.push_back(best);
      }
  }
};

/// Shapes [outer, count, inner] of reductions: single elements, short and long rows, and columns.
inline const std::vector<Shape> extreme_shapes = {{1, 1, 1},     {5, 7, 1}, {3, 1023, 1}, {2, 5000, 1},
                                                  {1, 40000, 1}, {2, 3, 5}, {3, 70, 300}, {700, 2, 1}};

}  // namespace lockstep::testing
