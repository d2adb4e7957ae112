// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "lockstep/tokenizer/byte_pair_model.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// Byte-level byte-pair encoding. Finds added tokens, normalizes the text between them if asked to, splits
/// the text between them into pieces, and merges bytes within each piece.
class BytePairTokenizer : public Tokenizer {
 public:
  explicit BytePairTokenizer(BytePairModel model);

  std::string to_json() const override;
  int64_t vocabulary_size() const override { return static_cast<int64_t>(model_.tokens.size()); }
  /// Encodes each occurrence of an added token, special ones too, as its id. Throws UserError that names the
  /// position of invalid UTF-8, or a byte without a token.
  std::vector<int32_t> encode(std::string_view text, std::string_view source = "the text") const override;
  std::vector<int32_t> encode_content(std::string_view text, std::string_view source) const override;
  /// Returns the text, normalized if the tokenizer normalizes texts.
  std::string decode(std::span<const int32_t> ids) const override;
  std::optional<int32_t> special_token(std::string_view content) const override;
  bool has_rules_of(const Tokenizer& other) const override;
  size_t safe_cut(std::string_view text, size_t near) const override;
  std::vector<int32_t> with_special_tokens(std::vector<int32_t> ids) const override;
  std::optional<int32_t> beginning_of_text() const override { return model_.beginning_of_text; }
  std::optional<int32_t> end_of_text() const override { return model_.end_of_text; }
  std::string chat_template() const override { return model_.chat_template; }
  std::vector<int32_t> beginning() const override;

 private:
  struct Encoding;

  std::vector<std::string_view> tokens_of_one_piece() const;
  std::vector<int32_t> encode(std::string_view text, std::string_view source, bool finds_special) const;
  bool is_in_added_token(std::string_view text, size_t place) const;
  bool may_normalize_across(std::string_view text, size_t place) const;
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
