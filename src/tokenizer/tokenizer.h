// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace lockstep {

/// A converter from text to ids of a vocabulary and back.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns this tokenizer as a Hugging Face tokenizer.json. tokenizer_from_json() makes an equal tokenizer
  /// from it and from tokenizer_config_json().
  virtual std::string to_json() const = 0;
  /// Returns a number that is greater than every id.
  virtual int64_t vocabulary_size() const = 0;
  /// Converts a text to ids. Throws UserError that names a byte or character it cannot encode. Errors call
  /// the text `source`.
  virtual std::vector<int32_t> encode(std::string_view text, std::string_view source = "the text") const = 0;
  /// Converts a text as encode() does, but special tokens that are written out in it stay text.
  virtual std::vector<int32_t> encode_content(std::string_view text, std::string_view source) const {
    return encode(text, source);
  }
  /// Returns the special token of this text, if the tokenizer has one.
  virtual std::optional<int32_t> special_token(std::string_view /*content*/) const { return {}; }
  /// Returns the bytes of the ids. They may be invalid UTF-8, since one token can be a part of a character.
  /// Throws Error for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// Returns whether a tokenizer with the same tokens gives texts the same ids, and ends them alike.
  virtual bool has_rules_of(const Tokenizer& other) const { return typeid(*this) == typeid(other); }
  /// Returns the first position at or after `near` where the text can be cut, or text.size() if there is
  /// none. The ids of both parts together are the ids of the whole text, and of every longer text that begins
  /// with it.
  virtual size_t safe_cut(std::string_view text, size_t near) const = 0;
  /// Returns the ids of a whole text with the special tokens that the tokenizer's file puts around it.
  virtual std::vector<int32_t> with_special_tokens(std::vector<int32_t> ids) const { return ids; }
  /// Returns the token that separates texts, if the vocabulary has one.
  virtual std::optional<int32_t> end_of_text() const { return {}; }
  /// Returns the token that begins a text, if the tokenizer names one.
  virtual std::optional<int32_t> beginning_of_text() const { return {}; }
  /// Returns the template of conversations that the tokenizer's files have, in Jinja; empty without one.
  virtual std::string chat_template() const { return {}; }
  /// Returns the ids that begin a generated text by default.
  virtual std::vector<int32_t> beginning() const = 0;
};

}  // namespace lockstep
