// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// How a text is continued. Names and meaning as in transformers where it has them.
struct GenerateOptions {
  int64_t tokens = 300;      ///< how many at most (max_new_tokens)
  double temperature = 0.8;  ///< 0 takes the likeliest token each time
  int64_t top_k = 0;         ///< draw from the k likeliest only; 0: from all
  double top_p =
      1.0;  ///< of those from the likeliest that have this probability together (Holtzman et al. 2020)
  double repetition_penalty = 1.0;  ///< of the ids in prompt and text (Keskar et al. 2019); 1: none
  uint64_t seed = 1337;
  uint32_t prompt = 0;                      ///< another number, other draws from the same seed
  int64_t symbols = 0;                      ///< only ids below this are drawn; 0: all of the model's
  std::optional<int32_t> end_of_text = {};  ///< ends the text, and is no part of it
  std::function<bool()> go_on = [] { return true; };  ///< asked before each token; false: that is all
};

/// Throws UserError for an option out of range; `where` goes before its name.
void require_valid(const GenerateOptions& options, const std::string& where = "");

/// The token that follows on `text`, drawn from its logits: a pure function of the arguments. `position`
/// tells the draws of a text apart. A logit that is not a number counts as minus infinity; of equal ones the
/// lower id goes first.
int32_t next_token(std::span<const double> logits, std::span<const int32_t> text,
                   const GenerateOptions& options, uint32_t position);

}  // namespace lockstep
