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

/// A view of some columns of an array, whose rows may have more. It owns nothing. An empty view has no data.
struct ColumnsView {
  void* data = nullptr;  ///< the first of these columns in the first row
  Shape shape;           ///< [..., columns]
  DType dtype = DType::f32;
  int64_t stride = 0;  ///< elements from the beginning of a row to that of the next

  ColumnsView() = default;
  ColumnsView(void* first, const Shape& columns, DType type, int64_t row_stride)
      : data(first), shape(columns), dtype(type), stride(row_stride) {}
  /// Takes all columns of an array.
  ColumnsView(const View& array)
      : ColumnsView(array.data, array.shape, array.dtype, array.shape.rank() > 0 ? array.shape[-1] : 0) {}

  explicit operator bool() const { return data != nullptr; }
  int64_t bytes() const { return shape.elements() * lockstep::bytes(dtype); }

  template <class T>
  T* as() const {
    return View{data, shape, dtype}.as<T>();
  }
};

/// Returns columns [first, first + count) of an array.
inline ColumnsView columns_of(const View& array, int64_t first, int64_t count) {
  std::byte* const begin = static_cast<std::byte*>(array.data);
  return {begin == nullptr ? nullptr : begin + first * bytes(array.dtype), array.shape.with_last(count),
          array.dtype, array.shape[-1]};
}

/// Returns the dtype of sums, statistics and gradients of parameters that belong to tensors of `dtype`. It is
/// f32 for 16-bit floats, else `dtype`.
constexpr DType accumulator_dtype(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
}

}  // namespace lockstep
