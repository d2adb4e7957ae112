// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/splitter.h"

#include <algorithm>
#include <array>
#include <climits>

#include "lockstep/core/error.h"
#include "lockstep/tokenizer/utf8.h"

namespace lockstep {
namespace {

struct KnownPattern {
  SplitRule rule;
  const char* text;
};

// split_pattern() writes the first pattern of a rule.
const std::array<KnownPattern, 8> known_patterns = {{
    {SplitRule::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitRule::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitRule::gpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitRule::cl100k,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::llama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::llama3,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::qwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::o200k,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

bool is_line_end(char byte) { return byte == '\r' || byte == '\n'; }

bool is_other(CharacterClass kind) { return kind == CharacterClass::other || kind == CharacterClass::mark; }

bool is_caseless(CharacterClass kind) {
  return kind == CharacterClass::caseless || kind == CharacterClass::mark;
}

int most_numbers_of(SplitRule rule) {
  if (rule == SplitRule::gpt2) return INT_MAX;
  return rule == SplitRule::qwen2 || rule == SplitRule::digits ? 1 : 3;
}

}  // namespace

std::optional<SplitRule> split_rule_of(std::string_view pattern) {
  for (const KnownPattern& known : known_patterns)
    if (pattern == known.text) return known.rule;
  return {};
}

std::string split_pattern(SplitRule rule) {
  for (const KnownPattern& known : known_patterns)
    if (rule == known.rule) return known.text;
  return "";
}

Splitter::Splitter(SplitRule rule)
    : rule_(rule),
      is_gpt2_(rule == SplitRule::gpt2 || rule == SplitRule::digits),
      most_numbers_(most_numbers_of(rule)),
      classes_(rule == SplitRule::digits ? CharacterClasses::with_numbers_of_unicode_17()
                                         : CharacterClasses::table()) {}

const char* Splitter::end_of_piece(const char* begin, const char* end) const {
  const char* const end_of_word = rule_ == SplitRule::o200k ? cased_word(begin, end) : word(begin, end);
  if (end_of_word != begin) return end_of_word;
  const auto [kind, bytes] = classes_.at(begin);
  if (kind == CharacterClass::number) return numbers(begin, end);
  if (is_other(kind)) return punctuation(begin, end);
  if (*begin == ' ' && begin + 1 < end) {
    const CharacterClass next = classes_.at(begin + 1).kind;
    if (is_other(next)) return punctuation(begin + 1, end);
    if (next == CharacterClass::number && rule_ == SplitRule::gpt2) return numbers(begin + 1, end);
  }
  return white_space(begin, end);
}

/// Returns the end of the characters whose classes belong to a run.
template <class Belongs>
const char* Splitter::end_of_run(const char* at, const char* end, Belongs belongs) const {
  while (at < end) {
    const auto [kind, bytes] = classes_.at(at);
    if (!belongs(kind)) break;
    at += bytes;
  }
  return at;
}

/// Returns the end of a contraction, or of letters with an optional leading character. Returns `at` if
/// neither begins there.
const char* Splitter::word(const char* at, const char* end) const {
  if (*at == '\'') {
    const char* const after = contraction(at, end);
    if (after != at) return after;
  }
  const auto [kind, bytes] = classes_.at(at);
  const char* const next = at + bytes;
  const auto is_letter_next = [&] { return next < end && is_letter(classes_.at(next).kind); };
  const bool begins_word = is_letter(kind) || (may_precede_word(at, kind) && is_letter_next());
  return begins_word ? end_of_run(next, end, is_letter) : at;
}

/// Matches the two word alternatives of o200k. Each is tried first with the optional leading character.
const char* Splitter::cased_word(const char* at, const char* end) const {
  const auto [kind, bytes] = classes_.at(at);
  const char* const next = at + bytes;
  const char* after = next;
  if (may_precede_word(at, kind)) after = cased_letters(next, end);
  if (after == next) {
    after = cased_letters(at, end);
    if (after == at) {
      // Without a lower or caseless letter the word is a run of upper ones.
      const char* const upper = may_precede_word(at, kind) ? next : at;
      after = end_of_run(upper, end, [](CharacterClass of) { return of == CharacterClass::upper; });
      if (after == upper) return at;
    }
  }
  return after < end && *after == '\'' ? contraction(after, end) : after;
}

/// Matches [upper, caseless]*[lower, caseless]+ and returns its end, or `at` without a match. If no lower
/// letter follows the first part, the match ends after the part's last caseless letter.
const char* Splitter::cased_letters(const char* at, const char* end) const {
  const char* place = at;
  const char* after_caseless = at;
  while (place < end) {
    const auto [kind, bytes] = classes_.at(place);
    if (kind != CharacterClass::upper && !is_caseless(kind)) break;
    place += bytes;
    if (is_caseless(kind)) after_caseless = place;
  }
  if (place == end || classes_.at(place).kind != CharacterClass::lower) return after_caseless;
  return end_of_run(place, end,
                    [](CharacterClass kind) { return kind == CharacterClass::lower || is_caseless(kind); });
}

const char* Splitter::numbers(const char* at, const char* end) const {
  for (int count = 0; at < end && count < most_numbers_; ++count) {
    const auto [kind, bytes] = classes_.at(at);
    if (kind != CharacterClass::number) break;
    at += bytes;
  }
  return at;
}

const char* Splitter::punctuation(const char* at, const char* end) const {
  at = end_of_run(at, end, is_other);
  if (is_gpt2_) return at;
  while (at < end && (is_line_end(*at) || (rule_ == SplitRule::o200k && *at == '/'))) ++at;
  return at;
}

/// Matches white space up to its last line end. Without a line end it matches all white space at the end of
/// the text. Elsewhere it leaves the last of several characters, which can begin the next piece.
const char* Splitter::white_space(const char* at, const char* end) const {
  const char* place = at;
  const char* last = at;
  const char* after_line_end = at;
  while (place < end) {
    const auto [kind, bytes] = classes_.at(place);
    if (kind != CharacterClass::white_space) break;
    last = place;
    place += bytes;
    if (is_line_end(*last)) after_line_end = place;
  }
  if (place == end && rule_ == SplitRule::cl100k) return end;
  if (after_line_end != at && !is_gpt2_) return after_line_end;
  // Digits are cut off first, so that the text ends there.
  const bool is_last =
      place == end || (rule_ == SplitRule::digits && classes_.at(place).kind == CharacterClass::number);
  return is_last || last == at ? place : last;
}

/// Matches 's 't 'm 'd 're 've 'll and returns the end, or `at` without a match. Every rule but gpt2 ignores
/// case and accepts U+017F as an s.
const char* Splitter::contraction(const char* at, const char* end) const {
  const auto byte = [&](int i) -> char {
    if (at + i >= end) return 0;
    const bool is_upper = at[i] >= 'A' && at[i] <= 'Z';
    return is_upper && !is_gpt2_ ? static_cast<char>(at[i] + ('a' - 'A')) : at[i];
  };
  const char first = byte(1);
  const char second = byte(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  return !is_gpt2_ && first == '\xC5' && second == '\xBF' ? at + 3 : at;
}

bool Splitter::may_precede_word(const char* at, CharacterClass kind) const {
  if (is_gpt2_) return *at == ' ';
  return !is_letter(kind) && kind != CharacterClass::number && !is_line_end(*at);
}

/// Cuts after a letter or number, before white space or a character that is no letter, number, mark or
/// apostrophe. A piece of the whole text ends there. In every rule a letter or number is followed in its
/// piece only by its own kind, a mark or the apostrophe of a contraction.
///
/// The part before the cut ends with the same piece. Every run stops at the end of a text as it does at such
/// a character. The two conditions that look ahead or test for the end of the text apply only after white
/// space, and the last character is not white space.
///
/// The part after the cut begins with the same piece, since no rule looks back.
size_t Splitter::safe_cut(std::string_view text, size_t near) const {
  if (near == 0) return 0;
  const char* const end = text.data() + text.size();
  // The text may be unchecked UTF-8. No cut is made next to a byte that begins no character.
  const auto classed = [&](const char* at) {
    return first_character({at, end}).is_valid() ? classes_.at(at)
                                                 : ClassedCharacter{CharacterClass::mark, 1};
  };
  const size_t place = next_character(text, near);
  size_t before = place - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  if (place >= text.size()) return text.size();
  CharacterClass previous = classed(text.data() + before).kind;
  for (const char* at = text.data() + place; at < end;) {
    const auto [kind, bytes] = classed(at);
    const bool ends_word =
        kind == CharacterClass::white_space || (kind == CharacterClass::other && *at != '\'');
    if ((is_letter(previous) || previous == CharacterClass::number) && ends_word)
      return static_cast<size_t>(at - text.data());
    previous = kind;
    at += bytes;
  }
  return text.size();
}

}  // namespace lockstep
