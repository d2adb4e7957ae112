// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tokenizer/byte_pair_model.h"

namespace lockstep {

/// Returns a tokenizer.json whose tokens are these characters, in order of their ids.
std::string character_tokenizer_json(const std::vector<std::string>& characters);
std::string byte_pair_tokenizer_json(const BytePairModel& model);

}  // namespace lockstep
