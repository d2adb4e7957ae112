// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The end of a stream of text.
class LastLines {
 public:
  static constexpr size_t most_lines = 20;
  static constexpr size_t most_bytes = 16384;

  void add(std::string_view text);
  std::vector<std::string> lines() const;

 private:
  std::string text_;
};

}  // namespace lockstep
