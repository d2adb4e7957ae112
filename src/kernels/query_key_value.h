// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/attention_heads.h"
#include "lockstep/kernels/view.h"

namespace lockstep {

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

/// The queries, keys and values of attention, or their gradients. They are columns of one array or three
/// arrays. Their columns are head-major: queries [..., heads.queries * size], keys and values [...,
/// heads.keys * size]. Rows of keys and of values are equally far apart.
struct QueryKeyValue {
  ColumnsView q = {}, k = {}, v = {};

  DType dtype() const { return q.dtype; }

  /// Returns the contiguous array that the columns of q, k and v fill in this order, else an empty view.
  View packed() const {
    const int64_t columns = q.shape[-1] + 2 * k.shape[-1], element = bytes(dtype());
    const auto* begin = static_cast<const std::byte*>(q.data);
    const bool is_packed = q.stride == columns && k.stride == columns && v.stride == columns &&
                           k.data == begin + q.shape[-1] * element &&
                           v.data == begin + (q.shape[-1] + k.shape[-1]) * element;
    return is_packed ? View{q.data, q.shape.with_last(columns), dtype()} : View{};
  }

  /// Throws Error unless the operands have `rank` dimensions and fit the heads. `gradient` is "d" in the
  /// names of gradients.
  void check(int rank, const AttentionHeads& heads, const char* gradient = "") const {
    heads.check();
    expect(q.shape.rank() == rank && q.shape[-1] % heads.queries == 0, "attention: ", gradient, "q is ",
           q.shape, " for ", heads.queries, " heads; ", rank,
           " dimensions are needed, the last of them heads * size");
    const Shape of_keys = q.shape.with_last(q.shape[-1] / heads.queries * heads.keys);
    expect(k.shape == of_keys && v.shape == of_keys, "attention: ", gradient, "k is ", k.shape, ", ",
           gradient, "v is ", v.shape, ", ", gradient, "q is ", q.shape, " for ", heads.queries,
           " query heads and ", heads.keys, " key heads; ", of_keys, " is needed for keys and values");
    expect(q.dtype != DType::i32 && k.dtype == q.dtype && v.dtype == q.dtype, "attention: ", gradient,
           "q is ", q.dtype, ", ", gradient, "k is ", k.dtype, ", ", gradient, "v is ", v.dtype,
           "; they must be of one floating-point type");
    expect(q.stride >= q.shape[-1] && k.stride >= k.shape[-1] && v.stride == k.stride,
           "attention: ", gradient, "q, ", gradient, "k and ", gradient, "v have rows of ", q.shape[-1], ", ",
           k.shape[-1], " and ", v.shape[-1], " columns that begin ", q.stride, ", ", k.stride, " and ",
           v.stride,
           " elements apart; rows must not overlap, and those of keys and values must be equally far apart");
  }
};

/// Returns the queries, keys and values that `array` [..., heads.packed() * size] packs in this order.
inline QueryKeyValue unpack_heads(const View& array, const AttentionHeads& heads) {
  heads.check();
  expect(array.shape.rank() > 0 && array.shape[-1] % heads.packed() == 0,
         "attention: packed queries, keys and values are ", array.shape, " for ", heads.queries,
         " query heads and ", heads.keys, " key heads; [..., ", heads.packed(), " * size] is needed");
  const int64_t size = array.shape[-1] / heads.packed();
  const int64_t queries = heads.queries * size, keys = heads.keys * size;
  return {.q = columns_of(array, 0, queries),
          .k = columns_of(array, queries, keys),
          .v = columns_of(array, queries + keys, keys)};
}

}  // namespace lockstep
