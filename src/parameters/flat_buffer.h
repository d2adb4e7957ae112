// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensor/parameter_memory.h"
#include "tensor/tensor.h"

namespace lockstep {

/// Ranges of one flat space for each rank: [rank], each in order.
using Ownership = std::vector<std::vector<Range>>;

/// How many elements ranges have together.
int64_t size_of(const std::vector<Range>& ranges);

/// Which elements of a flat space lie in a buffer: some ranges, in order, one after the other.
class Placement {
 public:
  Placement() = default;
  /// In order, apart from each other. Ranges that touch are joined, empty ones left out.
  explicit Placement(const std::vector<Range>& ranges);
  /// All of [0, elements).
  static Placement whole(int64_t elements) { return Placement({{0, elements}}); }

  const std::vector<Range>& ranges() const { return ranges_; }
  int64_t elements() const { return ranges_.empty() ? 0 : offsets_.back() + ranges_.back().size(); }
  bool is_whole(int64_t of_elements) const { return elements() == of_elements; }
  /// Whether a range lies here in one piece.
  bool holds(Range range) const { return find(range) >= 0; }
  /// Where it begins in the buffer. Throws Error if it is not here in one piece.
  int64_t offset_of(Range range) const;

  bool operator==(const Placement&) const = default;

 private:
  int64_t find(Range range) const;

  std::vector<Range> ranges_;
  std::vector<int64_t> offsets_;  ///< of each range in the buffer
};

/// A part of a flat space in memory: values, gradients, or a number that an optimizer keeps for each.
class FlatBuffer {
 public:
  FlatBuffer() = default;
  /// `memory` [placement.elements()]. `is_part`: ranks keep a space between them, of which one may happen to
  /// have all.
  FlatBuffer(Tensor memory, Placement placement, bool is_part = false);
  /// Of undefined contents. `pinned`: memory of the host that a GPU copies from and to.
  static FlatBuffer make(const Placement& placement, DType dtype, const Stream& stream, bool pinned = false);

  explicit operator bool() const { return static_cast<bool>(memory_); }
  /// All of it: [placement().elements()].
  const Tensor& memory() const { return memory_; }
  operator const Tensor&() const { return memory_; }
  template <class T>
  T* data() const {
    return memory_.data<T>();
  }
  int64_t size() const { return placement_.elements(); }
  const Placement& placement() const { return placement_; }
  DType dtype() const { return memory_.dtype(); }
  /// Whether every rank has all of it: the same answer on each.
  bool is_whole(int64_t of_elements) const {
    return memory_ && !is_part_ && placement_.is_whole(of_elements);
  }

  /// These elements, which lie here in one piece: as a kernel sees them, or as a tensor [range.size()].
  View view(Range range) const;
  Tensor part(Range range) const;

 private:
  Tensor memory_;
  Placement placement_;
  bool is_part_ = false;
};

}  // namespace lockstep
