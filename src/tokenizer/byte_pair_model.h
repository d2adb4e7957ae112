// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tokenizer/added_tokens.h"
#include "lockstep/tokenizer/merge_table.h"
#include "lockstep/tokenizer/splitter.h"

namespace lockstep {

struct TokenizerFile;

/// The data of a byte-level BPE tokenizer.
struct BytePairModel {
  std::vector<std::string> tokens;  ///< bytes by id; empty for an unused id
  std::vector<Merge> merges;        ///< in ascending order of their ranks
  std::vector<AddedToken> added;
  bool normalizes = false;  ///< texts are normalized: normalized()
  SplitRule rule = SplitRule::gpt2;
  /// If true, a piece that equals a token becomes that token even if merging gives others. It is
  /// ignore_merges of a tokenizer.json, and always true for tiktoken files.
  bool takes_whole_pieces = false;
  bool adds_blank_before_text = false;
  std::vector<int32_t> before, after;  ///< special tokens around a whole text
  std::optional<int32_t> beginning_of_text, end_of_text;
  std::string chat_template;  ///< in Jinja
  std::string json;           ///< the tokenizer.json it was read from; empty for other formats
};

/// Makes the model of a file of byte pairs. Throws UserError for impossible merges or ids.
BytePairModel byte_pair_model(const TokenizerFile& file, const std::string& origin);

/// Spells bytes as printable characters, as in GPT-2's vocabulary. A byte that is printable in Latin-1 stays
/// that character. The other bytes become U+0100 and the following in order.
std::string spell_bytes(std::string_view bytes);

}  // namespace lockstep
