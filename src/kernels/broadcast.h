// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>

#include "lockstep/kernels/view.h"

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

/// An operand of an elementwise kernel: an array, or one number that every element of the result reads. A
/// number is an argument of the kernel, so it needs no memory.
struct OperandView : View {
  double number = 0.0;

  OperandView() = default;
  OperandView(const View& array) : View(array) {}
  OperandView(double value, DType type) : number(value) { dtype = type; }

  bool is_number() const { return data == nullptr && shape.rank() == 0; }
};

/// Returns whether broadcast() accepts these shapes.
inline bool can_broadcast(const Shape& a, const Shape& b) {
  for (int i = -1; i >= -std::min(a.rank(), b.rank()); --i)
    if (a[i] != b[i] && a[i] != 1 && b[i] != 1) return false;
  return true;
}

/// The order in which operands are read while a result is written front to back. It has at most four
/// dimensions, the fastest first. A stride of 0 repeats an operand. Adjacent dimensions are merged if all
/// operands step through them as one.
template <size_t operands>
struct BroadcastPlan {
  using Numbers = std::array<int64_t, Shape::max_rank>;
  int rank = 1;
  Numbers extents = {1, 1, 1, 1};
  std::array<Numbers, operands> strides = {};  ///< of each operand

  /// Returns the offset of the result's element `index` in an operand.
  int64_t place(size_t operand, int64_t index) const {
    int64_t place = 0;
    for (size_t i = 0; i < static_cast<size_t>(rank); ++i) {
      place += index % extents[i] * strides[operand][i];
      index /= extents[i];
    }
    return place;
  }
};

/// Returns the plan for operands of these shapes. y is broadcast() of them.
template <size_t operands>
BroadcastPlan<operands> plan_broadcast(const std::array<Shape, operands>& shapes, const Shape& y) {
  BroadcastPlan<operands> plan;
  std::array<int64_t, operands> next;  // strides of dimensions that are not repeated
  next.fill(1);
  size_t last = 0;  // last dimension of the plan so far
  bool is_first = true;
  for (int i = -1; i >= -y.rank(); --i) {
    std::array<int64_t, operands> strides;
    bool is_joined = !is_first;
    for (size_t o = 0; o < operands; ++o) {
      const int64_t extent = i < -shapes[o].rank() ? 1 : shapes[o][i];
      strides[o] = extent == 1 ? 0 : next[o];
      next[o] *= extent;
      is_joined = is_joined && strides[o] == plan.strides[o][last] * plan.extents[last];
    }
    if (y[i] == 1) continue;
    if (is_joined) {
      plan.extents[last] *= y[i];
      continue;
    }
    if (!is_first) ++last;
    is_first = false;
    plan.extents[last] = y[i];
    for (size_t o = 0; o < operands; ++o) plan.strides[o][last] = strides[o];
  }
  plan.rank = static_cast<int>(last) + 1;
  return plan;
}

}  // namespace lockstep
