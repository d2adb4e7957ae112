// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/tokenizer/byte_pair_model.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// Returns a tokenizer.json whose tokens are these characters, in order of their ids.
std::string character_tokenizer_json(const std::vector<std::string>& characters);
std::string byte_pair_tokenizer_json(const BytePairModel& model);

/// Returns the tokenizer_config.json that belongs to Tokenizer::to_json(). `most_tokens` is the context
/// length.
std::string tokenizer_config_json(const Tokenizer& tokenizer, std::optional<int64_t> most_tokens = {});

}  // namespace lockstep
