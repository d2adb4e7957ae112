// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"

namespace lockstep {

/// A view of contiguous memory as an array with a shape and a dtype. It owns nothing. An optional argument of
/// a kernel that is not given is an empty view (no data).
struct View {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;

  explicit operator bool() const { return data != nullptr; }
  int64_t size() const { return shape.elements(); }
  int64_t bytes() const { return size() * lockstep::bytes(dtype); }

  template <class T>
  T* as() const {
    const bool fits = data == nullptr || dtype == dtype_of<T>;
    if (!fits) [[unlikely]]  // kernels call as() for every row, so the usual case makes no call
      expect(fits, "the view holds ", dtype, ", not ", dtype_of<T>);
    return static_cast<T*>(data);
  }
};

/// Returns the dtype of sums, statistics and gradients of parameters that belong to tensors of `dtype`. It is
/// f32 for 16-bit floats, else `dtype`.
constexpr DType accumulator_dtype(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
}

}  // namespace lockstep
