// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "lockstep/core/error.h"

namespace lockstep {

/// The extents of a contiguous tensor, outermost first; at most four. A scalar has none.
class Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    for (int64_t extent : extents) append(extent);
  }

  void append(int64_t extent) {
    expect(rank_ < max_rank, "a shape has at most ", max_rank, " dimensions");
    expect(extent >= 0, "a dimension of ", extent, " elements");
    extents_[rank_++] = extent;
    require_countable();
  }

  int rank() const { return rank_; }
  /// Returns the extent of a dimension; a negative number counts from the last.
  int64_t operator[](int dimension) const { return extents_[dimension < 0 ? dimension + rank_ : dimension]; }
  int64_t elements() const { return rank_ == 0 ? 1 : rows() * extents_[rank_ - 1]; }
  /// Returns the product of all extents but the last: the rows that a row-wise kernel sees.
  int64_t rows() const {
    int64_t product = 1;
    for (int i = 0; i + 1 < rank_; ++i) product *= extents_[i];
    return product;
  }
  /// Returns this shape with another last extent.
  Shape with_last(int64_t extent) const {
    Shape shape = *this;
    shape.extents_[rank_ - 1] = extent;
    shape.require_countable();
    return shape;
  }

  bool operator==(const Shape& other) const = default;

  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }

  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << "[";
    for (int i = 0; i < shape.rank_; ++i) out << (i ? ", " : "") << shape.extents_[i];
    return out << "]";
  }

 private:
  /// More than any memory holds. The bytes of hundreds of such tensors still add up without overflow.
  static constexpr double most_elements = 0x1p52;

  void require_countable() const {
    double count = 1.0;
    for (const int64_t extent : *this) count *= static_cast<double>(extent);
    require(count <= most_elements, "a tensor ", *this, " has ", count,
            " elements: lower the sizes of the model or of a batch");
  }

  std::array<int64_t, max_rank> extents_{};
  int rank_ = 0;
};

}  // namespace lockstep
