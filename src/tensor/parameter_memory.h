// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace lockstep {

/// Elements [begin, end) of a flat space.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// What both hold.
constexpr Range intersection(Range a, Range b) {
  const int64_t begin = a.begin > b.begin ? a.begin : b.begin, end = a.end < b.end ? a.end : b.end;
  return {begin, begin < end ? end : begin};
}

/// Who keeps the values of a model's parameters, as its tensors know it: they hold a place, and ask for
/// memory whenever an operation reads them.
class ParameterMemory {
 public:
  ParameterMemory() = default;
  virtual ~ParameterMemory() = default;
  ParameterMemory(const ParameterMemory&) = delete;
  ParameterMemory& operator=(const ParameterMemory&) = delete;

  /// Where the kernel that is launched next may read the elements `place` in `dtype`. Throws Error where they
  /// are not, and nothing can bring them.
  virtual std::byte* find(Range place, DType dtype) = 0;
  /// The dtype in which a model computes.
  virtual DType compute_dtype() const = 0;

  bool gradients_are_whole = true;
  bool gradients_are_scaled = false;  ///< by a loss scale: what walks leave
};

}  // namespace lockstep
