// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// Options for generating text. Names and meanings follow Hugging Face transformers if it has the option.
struct GenerateOptions {
  int64_t tokens = 300;      ///< the maximum number of tokens to draw (max_new_tokens)
  double temperature = 0.8;  ///< 0 takes the likeliest token each time
  int64_t top_k = 0;         ///< draw from the k likeliest only; 0: from all
  double top_p = 1.0;  ///< draw from the likeliest tokens with this total probability (Holtzman et al. 2020)
  double repetition_penalty = 1.0;  ///< for tokens already in prompt or text (Keskar et al. 2019); 1: none
  uint64_t seed = 1337;
  uint32_t prompt = 0;                      ///< another number gives other draws from the same seed
  int64_t symbols = 0;                      ///< only ids below this are drawn; 0: all ids of the model
  std::optional<int32_t> end_of_text = {};  ///< ends the text and is not part of it
  std::function<bool()> go_on = [] { return true; };  ///< called before each token; false ends the text
};

/// Throws UserError for an option out of range; `where` precedes the option's name in the message.
void require_valid(const GenerateOptions& options, const std::string& where = "");

/// Draws the token that follows `text` from its logits. The token is a pure function of the arguments.
/// `position` makes the draws of a text different. A logit that is not a number counts as minus infinity.
/// Among equal logits the lower id comes first.
int32_t next_token(std::span<const double> logits, std::span<const int32_t> text,
                   const GenerateOptions& options, uint32_t position);

}  // namespace lockstep
