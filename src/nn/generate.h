// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "nn/gpt.h"

namespace lockstep {

struct GenerateOptions {
  int64_t tokens = 300;
  double temperature = 0.8;  ///< 0 takes the likeliest token each time
  int64_t top_k = 0;         ///< draw from the k likeliest only; 0: from all
  uint64_t seed = 1337;
  int64_t symbols = 0;  ///< only ids below this are drawn; 0: all of the model's
  std::function<bool()> go_on = [] { return true; };  ///< asked before each token; false: that is all
};

/// A language model: i32 ids [1, time] -> logits [1, time, vocabulary], or of the last token only.
using LanguageModel = std::function<Tensor(const Tensor& ids)>;

/// `ids` continued by a model that sees the last `context` of them. A function of the model and the options
/// alone. Throws UserError for options out of range, Error where `ids` is empty.
std::vector<int32_t> generate(const LanguageModel& model, int64_t context, std::vector<int32_t> ids,
                              const GenerateOptions& options);
/// The same, reading every token once while they fit into the block size.
std::vector<int32_t> generate(const Gpt& model, std::vector<int32_t> ids, const GenerateOptions& options);

}  // namespace lockstep
