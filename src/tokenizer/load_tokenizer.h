// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// Makes a tokenizer from a Hugging Face tokenizer.json. `config_json` is its tokenizer_config.json, which
/// names the tokens that begin and end a text; it may be empty. `chat_template` replaces that of the
/// configuration unless it is empty. Throws UserError with `origin` (the file's name) and the place in it if
/// the file is damaged or has a feature that is not supported.
std::shared_ptr<const Tokenizer> tokenizer_from_json(
    std::string_view json, const std::string& origin, std::string_view config_json = {},
    const std::string& config_origin = "tokenizer_config.json", const std::string& chat_template = {});

/// Loads a tokenizer from a file: tokenizer.json, *.tiktoken, or vocab.json with merges.txt next to it. In a
/// folder it loads tokenizer.json, else vocab.json and merges.txt. Throws UserError that names the file.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

}  // namespace lockstep
