// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/generate.h"
#include "lockstep/tokenizer/tokenizer.h"

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

/// A text for a model to continue.
struct TextPrompt {
  std::string text = {};              ///< if empty, the tokenizer's beginning() is used
  std::string source = "the prompt";  ///< names the prompt in errors
  GenerateOptions options = {};       ///< symbols and end_of_text are taken from the tokenizer
  std::vector<std::string> stop_texts = {};
  TextSink sink = {};  ///< receives the continuation while it is generated
};

struct TextContinuation {
  std::string text = {};  ///< UTF-8, without the prompt and the stop text or token
  std::vector<int32_t> ids = {};
  int64_t prompt_tokens = 0;
  Finish finish = Finish::length;
};

/// "length", "end_of_text", "stop" or "interrupted".
const char* name(Finish finish);

/// Continues texts with generate(). Each result depends only on model, tokenizer and its own prompt.
/// `on_finish` receives the index and result of each finished prompt. Throws UserError if the tokenizer
/// cannot encode a prompt or an option is out of range.
std::vector<TextContinuation> write_texts(
    TextModel& model, const Tokenizer& tokenizer, const std::vector<TextPrompt>& prompts,
    const BatchLimits& limits = {},
    const std::function<void(size_t, const TextContinuation&)>& on_finish = {});

/// Returns the prompt and its continuation.
std::string write_text(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& prompt,
                       const GenerateOptions& options);

/// A request for a text, read from one line of JSON.
struct PromptLine {
  TextPrompt prompt;
  std::string id;  ///< as JSON; empty if the line has none
};

/// Reads prompts from JSON lines {"prompt": ..., "id": ..., "max_new_tokens": ..., "temperature": ...,
/// "top_k": ..., "top_p": ..., "repetition_penalty": ..., "seed": ..., "stop": [...]}. Only "prompt" is
/// required. `defaults` has the rest. Throws UserError that names `source`, the line and the key.
std::vector<PromptLine> read_prompt_lines(std::string_view text, const std::string& source,
                                          const TextPrompt& defaults);

/// Returns JSON without line end: id, prompt, text, tokens (ids), prompt_tokens (a count), finish_reason.
std::string to_json_line(const PromptLine& line, const TextContinuation& continuation);

}  // namespace lockstep
