// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "writing/write_texts.h"

namespace lockstep {

/// A line of JSON that asks for a text.
struct PromptLine {
  TextPrompt prompt;
  std::string id;  ///< as JSON; empty if the line has none
};

/// The prompts of JSON lines {"prompt": ..., "id": ..., "max_new_tokens": ..., "temperature": ..., "top_k":
/// ..., "top_p": ..., "repetition_penalty": ..., "seed": ..., "stop": [...]}, of which all but the first may
/// be missing; `defaults` has the rest. Throws UserError that names `source`, the line and the key.
std::vector<PromptLine> read_prompt_lines(std::string_view text, const std::string& source,
                                          const TextPrompt& defaults);

/// The answer as a line of JSON, without its end: id, prompt, text, tokens (their ids), prompt_tokens (how
/// many), finish_reason.
std::string to_json_line(const PromptLine& line, const TextContinuation& continuation);

}  // namespace lockstep
