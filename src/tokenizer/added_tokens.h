// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A token that is searched verbatim in a text, before the text is split into pieces.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool is_special = false;
  /// Normalized tokens are searched after all others, in the normalized text.
  bool is_normalized = false;
};

/// Finds added tokens from left to right. If several begin at one position, the longest matches.
class AddedTokens {
 public:
  struct Match {
    size_t begin;
    size_t end;
    const AddedToken* token;
  };

  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// All matches in a text, in order, of the tokens whose `is_normalized` equals `normalized`.
  std::vector<Match> find(std::string_view text, bool normalized) const;
  /// Returns true if an occurrence of such a token begins before `place` and ends after it. The text may be
  /// cut off: a token that begins at its end counts.
  bool straddles(std::string_view text, size_t place, bool normalized) const;
  /// Returns the bytes of the longest token.
  size_t longest() const { return longest_; }
  bool has_normalized() const { return has_normalized_; }
  /// Returns the token of this content, or null.
  const AddedToken* named(std::string_view content) const;

 private:
  /// Returns the longest added token that `text` has at `place`, or null. Considers only tokens whose
  /// `is_normalized` equals `normalized`.
  const AddedToken* longest_at(std::string_view text, size_t place, bool normalized) const;

  std::vector<AddedToken> tokens_;             // in the order of the constructor's argument
  std::vector<size_t> longest_first_;          // indices of tokens_, sorted by first byte, then longest first
  std::array<uint32_t, 257> begin_of_byte_{};  // first index in longest_first_ of each first byte
  size_t longest_ = 0;
  bool has_normalized_ = false;
};

}  // namespace lockstep
