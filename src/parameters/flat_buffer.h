// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensor/parameter_memory.h"
#include "tensor/tensor.h"

namespace lockstep {

/// Ranges of one flat space for each rank: [rank], each in order.
using Ownership = std::vector<std::vector<Range>>;

/// Returns the total number of elements in the ranges.
int64_t size_of(const std::vector<Range>& ranges);

/// The elements of a flat space that a buffer holds: some ranges, in order, one after another.
class Placement {
 public:
  Placement() = default;
  /// Ranges must be in order and must not overlap. Ranges that touch are joined. Empty ranges are left out.
  explicit Placement(const std::vector<Range>& ranges);
  /// Returns the placement of all of [0, elements).
  static Placement whole(int64_t elements) { return Placement({{0, elements}}); }

  const std::vector<Range>& ranges() const { return ranges_; }
  int64_t elements() const { return ranges_.empty() ? 0 : offsets_.back() + ranges_.back().size(); }
  bool is_whole(int64_t of_elements) const { return elements() == of_elements; }
  /// Returns the offset of a range in the buffer. Throws Error if the buffer does not hold it in one piece.
  int64_t offset_of(Range range) const;

  bool operator==(const Placement&) const = default;

 private:
  std::vector<Range> ranges_;
  std::vector<int64_t> offsets_;  ///< offset of each range in the buffer
};

/// A part of a flat space in memory: values, gradients, or an optimizer state.
class FlatBuffer {
 public:
  FlatBuffer() = default;
  /// `memory` has [placement.elements()]. `is_part`: ranks divide the space, even if one holds all of it.
  FlatBuffer(Tensor memory, Placement placement, bool is_part = false);
  /// Returns a buffer with undefined contents. `pinned`: host memory from and to which a GPU copies.
  static FlatBuffer make(const Placement& placement, DType dtype, const Stream& stream, bool pinned = false);

  explicit operator bool() const { return static_cast<bool>(memory_); }
  /// Returns all of it: [placement().elements()].
  const Tensor& memory() const { return memory_; }
  operator const Tensor&() const { return memory_; }
  template <class T>
  T* data() const {
    return memory_.data<T>();
  }
  int64_t size() const { return placement_.elements(); }
  const Placement& placement() const { return placement_; }
  DType dtype() const { return memory_.dtype(); }
  /// Returns whether every rank has all of it. All ranks get the same answer.
  bool is_whole(int64_t of_elements) const {
    return memory_ && !is_part_ && placement_.is_whole(of_elements);
  }

  /// Returns elements that the buffer holds in one piece, as a kernel's view or as a tensor [range.size()].
  View view(Range range) const;
  Tensor part(Range range) const;

 private:
  Tensor memory_;
  Placement placement_;
  bool is_part_ = false;
};

}  // namespace lockstep
