// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/byte_pair_tokenizer.h"

namespace lockstep {

/// Reads tiktoken's format: on each line a token's bytes in base64, and its id, which is the rank of all
/// merges that give it. Such a file names no pattern and no special tokens: both are known for GPT-2's,
/// cl100k, Llama 3's and o200k, told by the number of tokens, else by how the file's name begins. Throws
/// UserError with `origin` and line.
BytePairModel read_tiktoken(std::string_view text, const std::string& origin);

}  // namespace lockstep
