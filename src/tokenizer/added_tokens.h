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
  /// Normalized tokens are searched after all others, as in a normalized text. No text is normalized here.
  bool is_normalized = false;
};

/// Finds added tokens from left to right. If several begin at one position, the longest matches.
class AddedTokens {
 public:
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };

  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// All matches in a text, in order.
  std::vector<Match> find(std::string_view text) const;
  /// Returns true if an occurrence of an added token begins before `place` and ends after it. The text may be
  /// cut off: a token that begins at its end counts.
  bool straddles(std::string_view text, size_t place) const;

 private:
  /// Returns the longest added token that `text` has at `place`, or null. Considers only tokens whose
  /// `is_normalized` equals `normalized`.
  const AddedToken* longest_at(std::string_view text, size_t place, bool normalized) const;
  void find_between(std::string_view text, size_t begin, size_t end, bool normalized,
                    std::vector<Match>& matches) const;

  std::vector<AddedToken> tokens_;             // in the order of the constructor's argument
  std::vector<size_t> longest_first_;          // indices of tokens_, sorted by first byte, then longest first
  std::array<uint32_t, 257> begin_of_byte_{};  // first index in longest_first_ of each first byte
  size_t longest_ = 0;
  bool has_normalized_ = false;
};

}  // namespace lockstep
