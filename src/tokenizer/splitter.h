// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/unicode_classes.h"

namespace lockstep {

/// The patterns by which texts are split into pieces before merging. cl100k is tiktoken's, where white space
/// at the end is one piece even if it has line ends; llama3 is the same without that, as tokenizer.json files
/// spell it.
enum class SplitRule { gpt2, cl100k, llama3, qwen2, o200k };

/// The rule that a regular expression of a tokenizer.json is; none if it is another.
std::optional<SplitRule> split_rule_of(std::string_view pattern);
/// The regular expression, as `tokenizers` reads it.
std::string split_pattern(SplitRule rule);

/// Cuts valid UTF-8 texts into pieces as the regular expression of a rule does, over Unicode's
/// unicode_version.
class Splitter {
 public:
  explicit Splitter(SplitRule rule);

  /// The end of the piece that begins at `begin` < `end`.
  const char* end_of_piece(const char* begin, const char* end) const;

  /// The first place at or after `near` where any text may be cut without changing a piece, else text.size().
  size_t safe_cut(std::string_view text, size_t near) const;

 private:
  const char* word(const char* at, const char* end) const;
  const char* cased_word(const char* at, const char* end) const;
  const char* cased_letters(const char* at, const char* end) const;
  const char* letters(const char* at, const char* end) const;
  const char* numbers(const char* at, const char* end) const;
  const char* punctuation(const char* at, const char* end) const;
  const char* white_space(const char* at, const char* end) const;
  const char* contraction(const char* at, const char* end) const;
  bool is_letter_at(const char* at, const char* end) const;
  bool may_precede_word(const char* at, CharacterClass kind) const;

  SplitRule rule_;
  int most_numbers_;
  const CharacterClasses& classes_;
};

}  // namespace lockstep
