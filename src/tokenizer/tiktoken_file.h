// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lockstep/tokenizer/byte_pair_model.h"

namespace lockstep {

/// Reads tiktoken's format. Each line has a token's bytes in base64 and its id, which is also the rank of all
/// merges that give the token. Pattern and special tokens are not in the file. They are known for GPT-2,
/// cl100k, Llama 3 and o200k. The number of tokens selects the model, else the start of the file's name does.
/// The special tokens of Llama 3 need its version, from the file's name or from params.json next to it.
/// Throws UserError with `origin` and the line.
BytePairModel read_tiktoken(std::string_view text, const std::string& origin);

}  // namespace lockstep
