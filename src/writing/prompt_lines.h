// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "writing/write_texts.h"

namespace lockstep {

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
