// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/byte_pair_tokenizer.h"

namespace lockstep {

/// What files of Hugging Face's say of a tokenizer, as far as this library computes it.
struct TokenizerFile {
  enum class Model { characters, byte_pairs };

  Model model = Model::byte_pairs;
  /// As they are spelled in the file, in order of their ids.
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<std::array<std::string, 2>> merges;
  /// What errors call merge i: <merges_name><i + first_merge><merges_end>.
  std::string merges_name, merges_end;
  size_t first_merge = 0;
  std::vector<AddedToken> added;
  std::vector<std::string> added_names;  ///< what errors call them
  SplitRule rule = SplitRule::gpt2;
  bool ignores_merges = false;
  bool adds_prefix_space = false;
  std::vector<int32_t> before, after;
};

/// What the files beside a tokenizer say of it.
struct TokenizerConfig {
  struct Token {
    std::string name;  ///< what errors call it
    AddedToken token;
  };

  std::string origin;  ///< the path of tokenizer_config.json
  std::optional<bool> adds_prefix_space;
  std::string tokenizer_class;  ///< empty where none is named
  std::string adds_ends;        ///< add_bos_token or add_eos_token, where one is true
  bool has_added = false;       ///< whether tokenizer_config.json lists added tokens
  std::vector<Token> added;     ///< in order of their ids
  /// Those with a role by its name, such as pad_token, and others by what they are; without ids.
  std::map<std::string, Token> special;
  std::set<std::string> named;  ///< the roles that are spoken of, if only as null
};

/// The readers throw UserError with `origin` (the file's name) and the place in it.
TokenizerFile read_tokenizer_json(std::string_view json, const std::string& origin);
TokenizerConfig read_tokenizer_config(std::string_view json, const std::string& origin);
/// The special_tokens_map.json and the added_tokens.json of older versions.
void read_special_tokens_map(std::string_view json, const std::string& origin, TokenizerConfig& config);
void read_added_tokens_map(std::string_view json, const std::string& origin, TokenizerConfig& config);
/// GPT-2's two files: tokens with their ids, and a merge a line. No added tokens.
TokenizerFile read_vocabulary_and_merges(std::string_view vocabulary, const std::string& vocabulary_origin,
                                         std::string_view merges, const std::string& merges_origin);

/// The model of a file of byte pairs. Throws UserError for merges and ids that are impossible.
BytePairModel byte_pair_model(const TokenizerFile& file, const std::string& origin);

/// A tokenizer.json whose tokens are these characters, in order of their ids.
std::string character_tokenizer_json(const std::vector<std::string>& characters);
std::string byte_pair_tokenizer_json(const BytePairModel& model);

}  // namespace lockstep
