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

  /// A text that tells it from others, and from which an equal one can be made.
  virtual std::string vocabulary() const = 0;
  /// Every id is below it.
  virtual int64_t vocabulary_size() const = 0;
  /// Throws UserError that names what it cannot encode. `source` says in errors where the text is from.
  virtual std::vector<int32_t> encode(std::string_view text, std::string_view source = "the text") const = 0;
  /// Bytes: one token alone may be a part of a character. Throws Error for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The token that stands between texts, if there is one.
  virtual std::optional<int32_t> end_of_text() const { return {}; }
  /// What a text begins with if nobody says.
  virtual std::vector<int32_t> beginning() const = 0;
};

}  // namespace lockstep
