// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace lockstep {

/// What a tokenizer.json says, as far as this library computes it.
struct TokenizerFile {
  enum class Model { characters, byte_pairs };

  Model model = Model::byte_pairs;
  /// As they are spelled in the file, in order of their ids.
  std::vector<std::pair<std::string, int32_t>> vocabulary;
};

/// Throws UserError with `origin` (the file's name) and the place in it.
TokenizerFile read_tokenizer_json(std::string_view json, const std::string& origin);

/// A tokenizer.json whose tokens are these characters, in order of their ids.
std::string character_tokenizer_json(const std::vector<std::string>& characters);

}  // namespace lockstep
