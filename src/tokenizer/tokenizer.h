// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Text as ids of a vocabulary, and back.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// It as a Hugging Face tokenizer.json; tokenizer_from_json() makes an equal one of it and config_json().
  virtual std::string to_json() const = 0;
  /// The tokenizer_config.json that belongs to it. `most_tokens` is the longest text that the model takes.
  std::string config_json(std::optional<int64_t> most_tokens = {}) const;
  /// Every id is below it.
  virtual int64_t vocabulary_size() const = 0;
  /// Throws UserError that names what it cannot encode. `source` says in errors where the text is from.
  virtual std::vector<int32_t> encode(std::string_view text, std::string_view source = "the text") const = 0;
  /// Bytes: one token alone may be a part of a character. Throws Error for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// Where the text may be cut: the first place at or after `near` such that what is before it and what is
  /// after it, encoded one by one, give the ids of the whole. At most text.size().
  virtual size_t safe_cut(std::string_view text, size_t near) const = 0;
  /// The ids with those around them that the tokenizer's file asks for where a text stands alone.
  virtual std::vector<int32_t> with_special_tokens(std::vector<int32_t> ids) const { return ids; }
  /// The token that stands between texts, if there is one.
  virtual std::optional<int32_t> end_of_text() const { return {}; }
  /// The token that begins a text, if the tokenizer has a name for it.
  virtual std::optional<int32_t> beginning_of_text() const { return {}; }
  /// What a text begins with if nobody says.
  virtual std::vector<int32_t> beginning() const = 0;
};

}  // namespace lockstep
