// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/unicode/character_classes.h"

namespace lockstep {

/// The patterns that split texts into pieces before merging. cl100k is tiktoken's pattern: white space at the
/// end of a text is one piece, even with line ends. llama3 is cl100k without this rule, as tokenizer.json
/// files write it. digits is gpt2 between digits, which are cut off one by one before.
enum class SplitRule { gpt2, cl100k, llama3, qwen2, o200k, digits };

/// Returns the rule of a regular expression of a tokenizer.json, or nothing if it is unknown.
std::optional<SplitRule> split_rule_of(std::string_view pattern);
/// Returns the regular expression of a rule but digits, in the syntax of `tokenizers`.
std::string split_pattern(SplitRule rule);

/// Splits valid UTF-8 texts into the pieces that the regular expression of a rule matches. Characters have
/// their classes in Unicode 16.0.
class Splitter {
 public:
  explicit Splitter(SplitRule rule);

  /// Returns the end of the piece that begins at `begin`, which must be less than `end`.
  const char* end_of_piece(const char* begin, const char* end) const;

  /// Returns the first position at or after `near` where a cut changes no piece, or else text.size().
  size_t safe_cut(std::string_view text, size_t near) const;

 private:
  const char* word(const char* at, const char* end) const;
  const char* cased_word(const char* at, const char* end) const;
  const char* cased_letters(const char* at, const char* end) const;
  template <class Belongs>
  const char* end_of_run(const char* at, const char* end, Belongs belongs) const;
  const char* numbers(const char* at, const char* end) const;
  const char* punctuation(const char* at, const char* end) const;
  const char* white_space(const char* at, const char* end) const;
  const char* contraction(const char* at, const char* end) const;
  bool may_precede_word(const char* at, CharacterClass kind) const;

  SplitRule rule_;
  bool is_gpt2_;  ///< white space and words are those of GPT-2's pattern
  int most_numbers_;
  const CharacterClasses& classes_;
};

}  // namespace lockstep
