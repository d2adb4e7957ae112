// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "nn/sampling.h"
#include "nn/text_model.h"

namespace lockstep {

/// A text to be continued.
struct Prompt {
  std::vector<int32_t> ids;  ///< at least one
  GenerateOptions options = {};
  std::function<bool(int32_t id)> on_token = {};  ///< is given each token; false: that is all
};

/// Why a text ends.
enum class Finish { length, end_of_text, stopped, interrupted };

struct Continuation {
  std::vector<int32_t> ids = {};  ///< without the prompt
  Finish finish = Finish::length;
};

/// Texts that are read at once, and tokens of them in a pass. No result depends on these.
struct BatchLimits {
  int64_t texts = 8;
  int64_t tokens = 256;
};

/// Continues the prompts, which see the last context() tokens. The continuation of one is a function of the
/// model and of that prompt alone, whatever goes with it. `on_finish` is told the index of each that is over.
/// Throws UserError for options out of range, Error for a prompt without tokens.
std::vector<Continuation> generate(TextModel& model, const std::vector<Prompt>& prompts,
                                   const BatchLimits& limits = {},
                                   const std::function<void(size_t, const Continuation&)>& on_finish = {});

/// `ids` and how a model that sees the last `context` of them continues them.
std::vector<int32_t> generate(const LanguageModel& model, int64_t context, std::vector<int32_t> ids,
                              const GenerateOptions& options);
/// The same, reading every token once while they fit into the block size.
std::vector<int32_t> generate(const Gpt& model, std::vector<int32_t> ids, const GenerateOptions& options);

}  // namespace lockstep
