// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A token that is looked for in a text as it is written, before the text is split.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool is_special = false;
  /// Looked for after those that are not: what it would be in a text that was normalized.
  bool is_normalized = false;
};

/// Finds added tokens: of those that begin at a place the longest, from left to right.
class AddedTokens {
 public:
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };

  explicit AddedTokens(std::vector<AddedToken> tokens);

  const std::vector<AddedToken>& all() const { return tokens_; }
  std::optional<int32_t> id_of(std::string_view content) const;
  /// All matches in a text, in order.
  std::vector<Match> find(std::string_view text) const;
  /// Whether one is written over both sides of this place.
  bool straddles(std::string_view text, size_t place) const;

 private:
  /// The longest that is written at this place; null if none is.
  const AddedToken* longest_at(std::string_view text, size_t place, bool normalized) const;
  void find_between(std::string_view text, size_t begin, size_t end, bool normalized,
                    std::vector<Match>& matches) const;

  std::vector<AddedToken> tokens_;             // as given
  std::vector<size_t> longest_first_;          // their indices, by first byte, the longest first
  std::array<uint32_t, 257> begin_of_byte_{};  // where a first byte's begin in longest_first_
  size_t longest_ = 0;
  bool has_normalized_ = false;
};

}  // namespace lockstep
