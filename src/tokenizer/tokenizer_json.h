// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/tokenizer/added_tokens.h"
#include "lockstep/tokenizer/splitter.h"

namespace lockstep {

/// An added token with its place, as errors name it.
struct NamedToken {
  std::string name;
  AddedToken token;
};

/// The content of a Hugging Face tokenizer file, as far as this library supports it.
struct TokenizerFile {
  enum class Model { characters, byte_pairs };

  Model model = Model::byte_pairs;
  /// Tokens as the file spells them, in order of their ids.
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<std::array<std::string, 2>> merges;
  std::function<std::string(size_t)> name_of_merge;  ///< the place of a merge, as errors name it
  std::vector<NamedToken> added;
  bool normalizes = false;  ///< to NFC
  SplitRule rule = SplitRule::gpt2;
  bool ignores_merges = false;
  bool adds_prefix_space = false;
  std::vector<int32_t> before, after;
};

/// The content of the files next to a tokenizer, such as tokenizer_config.json.
struct TokenizerConfig {
  std::string origin;  ///< the path of tokenizer_config.json
  std::optional<bool> adds_prefix_space;
  std::string tokenizer_class;    ///< empty if the file names none
  std::string adds_ends;          ///< add_bos_token or add_eos_token if one is true, else empty
  std::string chat_template;      ///< in Jinja; empty if there is none
  bool has_added = false;         ///< whether tokenizer_config.json lists added tokens
  std::vector<NamedToken> added;  ///< in order of their ids
  /// Special tokens without ids. The key is the token's role, such as pad_token, or else its content.
  std::map<std::string, NamedToken> special;
  std::set<std::string> named;  ///< the roles that the files name, also those that are null
};

/// Reads a tokenizer.json. All readers throw UserError with `origin` (the file's name) and the place in it.
TokenizerFile read_tokenizer_json(std::string_view json, const std::string& origin);
TokenizerConfig read_tokenizer_config(std::string_view json, const std::string& origin);
/// Adds the content of a special_tokens_map.json or added_tokens.json, files of older versions, to `config`.
void read_special_tokens_map(std::string_view json, const std::string& origin, TokenizerConfig& config);
void read_added_tokens_map(std::string_view json, const std::string& origin, TokenizerConfig& config);
/// Reads GPT-2's two files: tokens with their ids, and one merge per line. The result has no added tokens.
TokenizerFile read_vocabulary_and_merges(std::string_view vocabulary, const std::string& vocabulary_origin,
                                         std::string_view merges, const std::string& merges_origin);

}  // namespace lockstep
