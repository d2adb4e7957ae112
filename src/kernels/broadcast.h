// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>

#include "kernels/view.h"

namespace lockstep {

/// Returns the shape of an element-by-element result of a and b, by PyTorch's rule. Extents are compared from
/// the last on. A missing extent is 1, and an extent of 1 is repeated to match the other. Throws Error naming
/// both shapes if they do not match.
inline Shape broadcast(const Shape& a, const Shape& b, const char* what) {
  for (int i = -1; i >= -std::min(a.rank(), b.rank()); --i)
    expect(a[i] == b[i] || a[i] == 1 || b[i] == 1, what, ": a is ", a, ", b is ", b, "; dimension ", i,
           " is ", a[i], " and ", b[i], ", which must be equal, or one of them 1");
  const Shape &longer = a.rank() >= b.rank() ? a : b, &shorter = a.rank() >= b.rank() ? b : a;
  Shape result;
  for (int i = -longer.rank(); i < 0; ++i)
    result.append(longer[i] == 1 && i >= -shorter.rank() ? shorter[i] : longer[i]);
  return result;
}

/// Returns whether broadcast() accepts these shapes.
inline bool can_broadcast(const Shape& a, const Shape& b) {
  for (int i = -1; i >= -std::min(a.rank(), b.rank()); --i)
    if (a[i] != b[i] && a[i] != 1 && b[i] != 1) return false;
  return true;
}

/// The order in which two operands are read while a result is written front to back. It has at most four
/// dimensions, the fastest first. A stride of 0 repeats an operand. Adjacent dimensions are merged if both
/// operands step through them as one.
struct BroadcastPlan {
  using Numbers = std::array<int64_t, Shape::max_rank>;
  int rank = 1;
  Numbers extents = {1, 1, 1, 1};
  Numbers of_a = {}, of_b = {};  ///< strides of each operand

  /// Returns the offset of the result's element `index` in an operand with these strides.
  int64_t place(const Numbers& strides, int64_t index) const {
    int64_t place = 0;
    for (int i = 0; i < rank; ++i) {
      place += index % extents[static_cast<size_t>(i)] * strides[static_cast<size_t>(i)];
      index /= extents[static_cast<size_t>(i)];
    }
    return place;
  }
};

/// Returns the plan for operands of shapes a and b. y is broadcast() of these shapes.
inline BroadcastPlan plan_broadcast(const Shape& a, const Shape& b, const Shape& y) {
  BroadcastPlan plan;
  int64_t next_a = 1, next_b = 1;  // strides of dimensions that are not repeated
  size_t last = 0;                 // last dimension of the plan so far
  bool is_first = true;
  for (int i = -1; i >= -y.rank(); --i) {
    const int64_t of_a = i < -a.rank() ? 1 : a[i], of_b = i < -b.rank() ? 1 : b[i];
    const int64_t stride_a = of_a == 1 ? 0 : next_a, stride_b = of_b == 1 ? 0 : next_b;
    next_a *= of_a;
    next_b *= of_b;
    if (y[i] == 1) continue;
    const int64_t extent = plan.extents[last];
    if (!is_first && stride_a == plan.of_a[last] * extent && stride_b == plan.of_b[last] * extent) {
      plan.extents[last] *= y[i];
      continue;
    }
    if (!is_first) ++last;
    is_first = false;
    plan.extents[last] = y[i];
    plan.of_a[last] = stride_a;
    plan.of_b[last] = stride_b;
  }
  plan.rank = static_cast<int>(last) + 1;
  return plan;
}

}  // namespace lockstep
