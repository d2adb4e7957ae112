// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace lockstep {

/// Makes a tokenizer of a Hugging Face tokenizer.json and, unless that is empty, the tokenizer_config.json
/// beside it, which names the tokens that begin and end a text. Throws UserError with `origin` (the file's
/// name) and the place in it for what is damaged, and for what this library does not compute.
std::shared_ptr<const Tokenizer> tokenizer_from_json(
    std::string_view json, const std::string& origin, std::string_view config_json = {},
    const std::string& config_origin = "tokenizer_config.json");

/// Reads a file (tokenizer.json, *.tiktoken, or vocab.json with merges.txt beside it), or a folder that holds
/// tokenizer.json, or else vocab.json and merges.txt. Throws UserError that names the file.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

}  // namespace lockstep
