// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/generate.h"
#include "tokenizer/tokenizer.h"
#include "writing/written_text.h"

namespace lockstep {

/// A text that a model is to continue.
struct TextPrompt {
  std::string text = {};              ///< empty: the tokenizer's beginning()
  std::string source = "the prompt";  ///< says in errors where it is from
  GenerateOptions options = {};       ///< symbols and end_of_text are the tokenizer's
  std::vector<std::string> stop_texts = {};
  TextSink sink = {};  ///< is handed the continuation as it is written
};

struct TextContinuation {
  std::string text = {};  ///< UTF-8, without the prompt and what ended it
  std::vector<int32_t> ids = {};
  int64_t prompt_tokens = 0;
  Finish finish = Finish::length;
};

/// "length", "end_of_text", "stop" or "interrupted".
const char* name(Finish finish);

/// generate() on texts: each is a function of model, tokenizer and prompt alone. `on_finish` is told which
/// prompt is over. Throws UserError for what the tokenizer does not know, or options out of range.
std::vector<TextContinuation> write_texts(
    TextModel& model, const Tokenizer& tokenizer, const std::vector<TextPrompt>& prompts,
    const BatchLimits& limits = {},
    const std::function<void(size_t, const TextContinuation&)>& on_finish = {});

/// The prompt and its continuation.
std::string write_text(const Gpt& model, const Tokenizer& tokenizer, const std::string& prompt,
                       const GenerateOptions& options);

}  // namespace lockstep
