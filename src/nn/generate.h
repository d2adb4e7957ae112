// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "nn/sampling.h"
#include "nn/text_model.h"

namespace lockstep {

/// A text to be continued.
struct Prompt {
  std::vector<int32_t> ids;  ///< at least one
  GenerateOptions options = {};
  std::function<bool(int32_t id)> on_token = {};  ///< called with each token; returning false ends the text
};

/// The reason why a text has ended.
enum class Finish { length, end_of_text, stopped, interrupted };

struct Continuation {
  std::vector<int32_t> ids = {};  ///< without the prompt
  Finish finish = Finish::length;
};

/// Limits of a batch: texts that are read at once and tokens per pass. Results do not depend on them.
struct BatchLimits {
  int64_t texts = 8;
  int64_t tokens = 256;
};

/// Continues the prompts; the model sees the last context() tokens of each text. A continuation is a function
/// of the model and its prompt alone, not of other prompts. `on_finish` gets the index and continuation of
/// each finished text. Throws UserError for options out of range and Error for a prompt without tokens.
std::vector<Continuation> generate(TextModel& model, const std::vector<Prompt>& prompts,
                                   const BatchLimits& limits = {},
                                   const std::function<void(size_t, const Continuation&)>& on_finish = {});

/// Returns `ids` followed by the continuation of a model that sees the last `context` of them.
std::vector<int32_t> generate(const LogitsFunction& model, int64_t context, std::vector<int32_t> ids,
                              const GenerateOptions& options);
/// Returns `ids` and the continuation. While the text fits the block size, each token is read once.
std::vector<int32_t> generate(const LanguageModel& model, std::vector<int32_t> ids,
                              const GenerateOptions& options);

}  // namespace lockstep
