// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/char_tokenizer.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/tokenizer/utf8.h"
#include "lockstep/tokenizer/write_tokenizer_json.h"

namespace lockstep {
namespace {

/// Returns a character for a message: 'x' (U+0078). A blank or control character has only its number.
std::string describe(char32_t character) {
  const bool shows = character > 0x20 && character != 0x7F;
  const std::string number = upper_case(hexadecimal(static_cast<uint64_t>(character), 4));
  return concat(shows ? concat("'", encode_utf8(character), "' ") : "", "(U+", number, ")");
}

}  // namespace

CharTokenizer::CharTokenizer(std::string_view text) : characters_(decode_utf8(text, "the vocabulary")) {
  std::sort(characters_.begin(), characters_.end());
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
}

std::string CharTokenizer::vocabulary() const { return encode_utf8(characters_); }

std::vector<int32_t> CharTokenizer::encode(std::string_view text, std::string_view source) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (char32_t character : decode_utf8(text, source)) {
    const auto found = std::lower_bound(characters_.begin(), characters_.end(), character);
    if (found == characters_.end() || *found != character)
      throw UserError(concat(source, " has the character ", describe(character), ", which is not among the ",
                             vocabulary_size(), " characters of the vocabulary"));
    ids.push_back(static_cast<int32_t>(found - characters_.begin()));
  }
  return ids;
}

std::string CharTokenizer::to_json() const {
  std::vector<std::string> tokens;
  for (char32_t character : characters_) tokens.push_back(encode_utf8(character));
  return character_tokenizer_json(tokens);
}

size_t CharTokenizer::safe_cut(std::string_view text, size_t near) const {
  return next_character(text, near);
}

std::vector<int32_t> CharTokenizer::beginning() const {
  const bool has_lines = std::binary_search(characters_.begin(), characters_.end(), U'\n');
  return has_lines ? encode("\n") : std::vector<int32_t>{0};
}

std::string CharTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (int32_t id : ids) {
    expect(id >= 0 && id < vocabulary_size(), "the token id ", id, " is outside the vocabulary of ",
           vocabulary_size());
    text += encode_utf8(characters_[static_cast<size_t>(id)]);
  }
  return text;
}

}  // namespace lockstep
