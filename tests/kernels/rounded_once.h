// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include "kernels/values.h"

namespace lockstep::testing {

using Outputs = std::vector<Values>;

/// A source of a case's tensors. The values are numbers of `dtype`. Their storage is `dtype` too, except in
/// the reference run, which stores them in fp32.
struct Numbers {
  DType dtype;
  bool is_reference = false;

  DType storage() const { return is_reference ? DType::f32 : dtype; }
  Values uniform(Shape shape, uint64_t seed, double low = -2.0, double high = 2.0) const {
    return Values::uniform(shape, dtype, seed, low, high).in(storage());
  }
  Values result(Shape shape) const { return Values(shape, storage()); }
  /// Rounds an intermediate result that the case keeps in 16 bits.
  Values rounded(const Values& values) const { return values.in(dtype).in(storage()); }
};

using Computation = std::function<Outputs(const Numbers&, int threads)>;

/// Expects 16-bit outputs to be the reference's outputs rounded once, on any number of threads. Expects equal
/// fp32 outputs.
inline void expect_rounded_once(const Computation& outputs_of) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Outputs expected = outputs_of({dtype, true}, 1);
    for (const int threads : {1, 2, 3}) {
      const Outputs actual = outputs_of({dtype}, threads);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i)
        ASSERT_EQ(actual[i], expected[i].in(actual[i].dtype()))
            << dtype << ", output " << i << ", " << threads << " threads";
    }
  }
}

}  // namespace lockstep::testing
