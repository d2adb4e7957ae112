// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dtype.h"
#include "core/shape.h"

namespace lockstep {

/// Contiguous memory seen as an array of a shape and a dtype. Owns nothing. Empty (no data) where a kernel's
/// contract calls an argument optional.
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
    if (!fits) [[unlikely]]  // kernels ask row by row, so what is always true costs no call
      expect(fits, "the view holds ", dtype, ", not ", dtype_of<T>);
    return static_cast<T*>(data);
  }
};

/// What sums, statistics and gradients of parameters are stored in beside tensors of `dtype`: f32 for 16-bit
/// floats, else the same.
constexpr DType accumulator_dtype(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
}

}  // namespace lockstep
