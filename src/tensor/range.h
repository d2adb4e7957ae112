// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep {

/// Elements [begin, end) of a flat space.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Returns the elements that both ranges contain.
constexpr Range intersection(Range a, Range b) {
  const int64_t begin = a.begin > b.begin ? a.begin : b.begin, end = a.end < b.end ? a.end : b.end;
  return {begin, begin < end ? end : begin};
}

}  // namespace lockstep
