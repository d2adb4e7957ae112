// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// A tokenizer with one token per code point. Ids number the characters in ascending order of code points.
class CharTokenizer : public Tokenizer {
 public:
  /// The vocabulary is the set of characters of this UTF-8 text. The vocabulary() of another tokenizer makes
  /// an equal tokenizer.
  explicit CharTokenizer(std::string_view text);

  int64_t vocabulary_size() const override { return static_cast<int64_t>(characters_.size()); }
  /// Returns all characters in order of their ids, as UTF-8.
  std::string vocabulary() const;
  /// Returns a tokenizer.json of the model WordLevel over single characters.
  std::string to_json() const override;
  /// Throws UserError that names a character outside the vocabulary.
  std::vector<int32_t> encode(std::string_view text, std::string_view source = "the text") const override;
  std::string decode(std::span<const int32_t> ids) const override;
  size_t safe_cut(std::string_view text, size_t near) const override;
  /// Returns the line end, or the first character of a vocabulary without line ends.
  std::vector<int32_t> beginning() const override;

 private:
  std::u32string characters_;  // ascending
};

}  // namespace lockstep
