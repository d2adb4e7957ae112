// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

/// Returns numbers in [-1, 1) that f32 represents exactly, so that both precisions start from the same
/// values.
inline Tensor uniform_tensor(const Shape& shape, uint32_t stream_id, DType dtype = DType::f64) {
  const Tensor values = empty(shape, DType::f32);
  fill_uniform(values, -1.0, 1.0, 2024, stream_id);
  return convert(values, dtype);
}

/// Returns whole numbers in [0, end).
inline std::vector<int32_t> random_id_values(int64_t count, int64_t end, uint32_t stream_id) {
  std::vector<int32_t> ids;
  for (const double value : to_doubles(uniform_tensor({count}, stream_id, DType::f32)))
    ids.push_back(static_cast<int32_t>(std::floor((value + 1.0) / 2.0 * static_cast<double>(end))));
  return ids;
}
inline Tensor random_ids(const Shape& shape, int64_t end, uint32_t stream_id) {
  return from_values(random_id_values(shape.elements(), end, stream_id), shape);
}

inline bool has_same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.view().bytes())) == 0;
}

/// A function that computes a scalar in f64 from the leaves at every call.
using ScalarFunction = std::function<Tensor()>;

/// Fails unless backward() gives the slopes of `function` with respect to the f64 leaves. Checks every
/// element of a leaf, or about `most` elements of a larger one.
///
/// The five-point difference with step h has two errors. One is h^4 / 30 times the fifth derivative. The
/// other is 1.5 / h times the rounding of one value. With h = 2^-13 both are about 1e-12, if the value is
/// right to two roundings and the fifth derivative is 1e5. The tolerance is twenty times that.
inline void expect_gradients(const std::vector<NamedTensor>& leaves, const ScalarFunction& function,
                             int64_t most = 1 << 30) {
  constexpr double h = 0x1p-13;
  const Tensor value = function();
  const double tolerance = (1.0 + std::fabs(item(value))) * 20 * 1e-12;
  backward(value);
  const NoGrad no_grad;
  for (const auto& [name, leaf] : leaves) {
    ASSERT_TRUE(leaf.grad()) << name << " has no gradient";
    auto* elements = leaf.data<double>();
    // An odd stride visits all columns of the usual widths.
    const int64_t stride = leaf.size() <= most ? 1 : leaf.size() / most | 1;
    for (int64_t i = 0; i < leaf.size(); i += stride) {
      const double before = elements[i];
      const auto at = [&](double offset) {
        elements[i] = before + offset;
        return item(function());
      };
      const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
      elements[i] = before;
      ASSERT_NEAR(leaf.grad().data<double>()[i], slope, tolerance * (1.0 + std::fabs(slope)))
          << name << ", element " << i;
    }
  }
}

}  // namespace lockstep
