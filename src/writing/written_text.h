// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Where pieces of a text go, in order. A piece never ends within a character.
using TextSink = std::function<void(std::string_view)>;

/// Bytes as they are decoded, token by token, on their way to a reader. What may yet become a stop text, or
/// is the beginning of a character, is held back; bytes that are no UTF-8 become U+FFFD.
class WrittenText {
 public:
  explicit WrittenText(std::vector<std::string> stop_texts, TextSink sink = {});

  /// Takes the bytes of the next token. False if a stop text is complete: the text ends before it.
  bool add(std::string_view bytes);
  /// There is no more: hands out what was held back.
  void finish();
  /// All that was handed out so far.
  const std::string& text() const { return text_; }

 private:
  /// The bytes at the end of `held_` that may be the beginning of a stop text.
  size_t possible_stop() const;
  void hand_out(size_t bytes, bool is_end);

  std::vector<std::string> stop_texts_;
  TextSink sink_;
  std::string held_;  ///< not handed out
  std::string text_;
};

}  // namespace lockstep
