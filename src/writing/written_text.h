// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A receiver of the pieces of a text, in order. A piece never ends within a character.
using TextSink = std::function<void(std::string_view)>;

/// A text that is decoded token by token and passed to a sink. Bytes that can begin a stop text or are
/// an incomplete character are held back. Invalid UTF-8 becomes U+FFFD.
class WrittenText {
 public:
  explicit WrittenText(std::vector<std::string> stop_texts, TextSink sink = {});

  /// Adds the bytes of the next token. Returns false if a stop text is complete. The text ends before it.
  bool add(std::string_view bytes);
  /// Ends the text and passes the held bytes to the sink.
  void finish();
  /// Returns the text that was passed to the sink so far.
  const std::string& text() const { return text_; }

 private:
  /// Returns the number of bytes at the end of `held_` that can begin a stop text.
  size_t possible_stop() const;
  void hand_out(size_t bytes, bool is_end);

  std::vector<std::string> stop_texts_;
  TextSink sink_;
  std::string held_;  ///< not yet passed to the sink
  std::string text_;
};

}  // namespace lockstep
