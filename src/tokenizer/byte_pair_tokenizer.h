// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>

#include "tokenizer/added_tokens.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// What a byte-level BPE is made of.
struct BytePairModel {
  std::vector<std::string> tokens;  ///< bytes by id; empty where no token has the id
  std::vector<Merge> merges;        ///< in ascending order of their ranks
  std::vector<AddedToken> added;
  SplitRule rule = SplitRule::gpt2;
  /// A piece that is a token becomes it even if merging gives others (ignore_merges, and all of tiktoken).
  bool takes_whole_pieces = false;
  bool adds_blank_before_text = false;
  std::vector<int32_t> before, after;  ///< what stands around a text that stands alone
  std::optional<int32_t> beginning_of_text, end_of_text;
  std::string json;  ///< the file it was read from, if that was a tokenizer.json
};

/// Byte-level byte-pair encoding: added tokens, then pieces of a pattern, then merges within each.
class BytePairTokenizer : public Tokenizer {
 public:
  explicit BytePairTokenizer(BytePairModel model);

  std::string to_json() const override;
  int64_t vocabulary_size() const override { return static_cast<int64_t>(model_.tokens.size()); }
  /// Added tokens that the text writes out become their ids, special ones too. Throws UserError with the byte
  /// that is no UTF-8, or has no token.
  std::vector<int32_t> encode(std::string_view text, std::string_view source = "the text") const override;
  std::string decode(std::span<const int32_t> ids) const override;
  size_t safe_cut(std::string_view text, size_t near) const override;
  std::vector<int32_t> with_special_tokens(std::vector<int32_t> ids) const override;
  std::optional<int32_t> beginning_of_text() const override { return model_.beginning_of_text; }
  std::optional<int32_t> end_of_text() const override { return model_.end_of_text; }
  std::vector<int32_t> beginning() const override;

 private:
  struct Encoding;

  std::vector<std::string_view> tokens_of_one_piece() const;
  void encode_between(std::string_view text, Encoding& encoding) const;
  void encode_pieces(std::string_view text, Encoding& encoding) const;
  void merge_piece(std::string_view piece, Encoding& encoding) const;

  BytePairModel model_;
  AddedTokens added_;
  Splitter splitter_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_tokens_;
  PieceTable pieces_;
};

}  // namespace lockstep
