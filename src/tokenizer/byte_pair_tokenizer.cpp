// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/byte_pair_tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/tokenizer/utf8.h"
#include "lockstep/tokenizer/write_tokenizer_json.h"
#include "lockstep/unicode/normalization.h"

namespace lockstep {
namespace {

std::array<int32_t, 256> tokens_of_bytes(const BytePairModel& model) {
  std::array<int32_t, 256> ids;
  ids.fill(-1);
  for (size_t id = 0; id < model.tokens.size(); ++id)
    if (model.tokens[id].size() == 1 && ids[static_cast<unsigned char>(model.tokens[id][0])] < 0)
      ids[static_cast<unsigned char>(model.tokens[id][0])] = static_cast<int32_t>(id);
  return ids;
}

}  // namespace

/// The state of one call of encode().
struct BytePairTokenizer::Encoding {
  /// A piece that was merged before: its position in the text and its ids in the result.
  struct SeenPiece {
    uint64_t hash = 0;
    const char* begin = nullptr;
    size_t bytes = 0;
    size_t first_id = 0;
    size_t ids = 0;
  };

  std::string_view source;
  std::vector<int32_t> ids;
  std::vector<SeenPiece> seen;
  std::deque<std::string> normalized;  ///< texts that `seen` points to
  MergeTable::Scratch scratch;
};

BytePairTokenizer::BytePairTokenizer(BytePairModel model)
    : model_(std::move(model)),
      added_(model_.added),
      splitter_(model_.rule),
      merges_(model_.merges),
      byte_tokens_(tokens_of_bytes(model_)),
      pieces_(tokens_of_one_piece()) {}

/// Returns the tokens that a piece with the same bytes is encoded as. All other tokens are empty.
std::vector<std::string_view> BytePairTokenizer::tokens_of_one_piece() const {
  std::vector<std::string_view> tokens(model_.tokens.begin(), model_.tokens.end());
  for (const AddedToken& token : model_.added) tokens[static_cast<size_t>(token.id)] = {};
  if (model_.takes_whole_pieces) return tokens;
  MergeTable::Scratch scratch;
  std::vector<int32_t> symbols;
  for (size_t id = 0; id < tokens.size(); ++id) {
    symbols.clear();
    for (const char byte : tokens[id]) symbols.push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
    const bool is_alone = std::find(symbols.begin(), symbols.end(), -1) == symbols.end() &&
                          merges_.merge(symbols.data(), symbols.size(), scratch) == 1 &&
                          symbols[0] == static_cast<int32_t>(id);
    if (!is_alone) tokens[id] = {};
  }
  return tokens;
}

std::vector<int32_t> BytePairTokenizer::encode(std::string_view text, std::string_view source) const {
  return encode(text, source, true);
}

std::vector<int32_t> BytePairTokenizer::encode_content(std::string_view text, std::string_view source) const {
  return encode(text, source, false);
}

std::vector<int32_t> BytePairTokenizer::encode(std::string_view text, std::string_view source,
                                               bool finds_special) const {
  check_utf8(text, source);
  Encoding encoding;
  encoding.source = source;
  encoding.ids.reserve(text.size() / 3 + 16);
  encoding.seen.resize(std::clamp<size_t>(std::bit_ceil(text.size() / 32 + 1), 16, 1 << 15));
  const auto divide = [&](std::string_view whole, bool normalized, const auto& encode_part) {
    size_t begin = 0;
    for (const AddedTokens::Match& match : added_.find(whole, normalized)) {
      if (match.token->is_special && !finds_special) continue;
      encode_part(whole.substr(begin, match.begin - begin));
      encoding.ids.push_back(match.token->id);
      begin = match.end;
    }
    encode_part(whole.substr(begin));
  };
  divide(text, false, [&](std::string_view part) {
    if (part.empty()) return;
    if (model_.normalizes) part = encoding.normalized.emplace_back(normalized(part));
    divide(part, true, [&](std::string_view between) { encode_between(between, encoding); });
  });
  return std::move(encoding.ids);
}

void BytePairTokenizer::encode_between(std::string_view text, Encoding& encoding) const {
  if (text.empty()) return;
  if (!model_.adds_blank_before_text || text.front() == ' ') {
    encode_pieces(text, encoding);
    return;
  }
  // No rule looks back, so the added blank changes only the first piece.
  const std::string with_blank = concat(" ", text);
  const char* const begin = with_blank.data();
  const char* const after = splitter_.end_of_piece(begin, begin + with_blank.size());
  const std::string_view first(begin, static_cast<size_t>(after - begin));
  if (const int32_t id = pieces_.find(first, PieceTable::hash(first)); id >= 0)
    encoding.ids.push_back(id);
  else
    merge_piece(first, encoding);
  encode_pieces(text.substr(first.size() - 1), encoding);
}

void BytePairTokenizer::encode_pieces(std::string_view text, Encoding& encoding) const {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const after = splitter_.end_of_piece(at, end);
    const std::string_view piece(at, static_cast<size_t>(after - at));
    at = after;
    const uint64_t hash = PieceTable::hash(piece);
    if (const int32_t id = pieces_.find(piece, hash); id >= 0) {
      encoding.ids.push_back(id);
      continue;
    }
    Encoding::SeenPiece& seen = encoding.seen[(hash >> 16) & (encoding.seen.size() - 1)];
    const size_t first = encoding.ids.size();
    if (seen.hash == hash && seen.bytes == piece.size() &&
        std::memcmp(seen.begin, piece.data(), piece.size()) == 0) {
      encoding.ids.resize(first + seen.ids);
      std::copy_n(encoding.ids.data() + seen.first_id, seen.ids, encoding.ids.data() + first);
      continue;
    }
    merge_piece(piece, encoding);
    seen = {hash, piece.data(), piece.size(), first, encoding.ids.size() - first};
  }
}

void BytePairTokenizer::merge_piece(std::string_view piece, Encoding& encoding) const {
  const size_t first = encoding.ids.size();
  encoding.ids.resize(first + piece.size());
  int32_t* const symbols = encoding.ids.data() + first;
  for (size_t i = 0; i < piece.size(); ++i) {
    symbols[i] = byte_tokens_[static_cast<unsigned char>(piece[i])];
    require(symbols[i] >= 0, encoding.source, " has the byte 0x", hexadecimal(piece.substr(i, 1)), " (in \"",
            piece.substr(0, 40), "\"), which has no token in the vocabulary");
  }
  encoding.ids.resize(first + merges_.merge(symbols, piece.size(), encoding.scratch));
}

std::string BytePairTokenizer::decode(std::span<const int32_t> ids) const {
  size_t bytes = 0;
  for (int32_t id : ids) {
    expect(id >= 0 && id < vocabulary_size(), "the token id ", id, " is outside the vocabulary of ",
           vocabulary_size());
    bytes += model_.tokens[static_cast<size_t>(id)].size();
  }
  std::string text;
  text.reserve(bytes);
  for (int32_t id : ids) text += model_.tokens[static_cast<size_t>(id)];
  return text;
}

/// Splitter::safe_cut() finds a position inside no piece. This function also skips positions inside an added
/// token. Added tokens are searched from left to right, so both parts then have the matches of the whole.
size_t BytePairTokenizer::safe_cut(std::string_view text, size_t near) const {
  // Every part would get a blank of its own, so the text must stay whole.
  if (model_.adds_blank_before_text) return near == 0 ? 0 : text.size();
  size_t place = splitter_.safe_cut(text, near);
  while (place < text.size() && (is_in_added_token(text, place) || may_normalize_across(text, place)))
    place = splitter_.safe_cut(text, place + 1);
  return place;
}

bool BytePairTokenizer::is_in_added_token(std::string_view text, size_t place) const {
  if (added_.straddles(text, place, false)) return true;
  if (!model_.normalizes || !added_.has_normalized()) return added_.straddles(text, place, true);
  // Normalizes only the neighborhood of the place, which must have the longest token before it.
  std::string before;
  for (size_t bytes = 4 * added_.longest();; bytes *= 2) {
    const size_t begin = normalization_cut(text, place - std::min(place, bytes));
    before = normalized(text.substr(begin, place - begin));
    if (begin == 0 || before.size() >= added_.longest()) break;
  }
  const size_t end = normalization_cut(text, place + 4 * added_.longest());
  const std::string after = normalized(text.substr(place, std::max(end, place) - place));
  return added_.straddles(before + after, before.size(), true);
}

/// Splitter::safe_cut() has put the place behind a letter or number, and before white space or a character
/// that joins nothing before it and stays of this kind. The letter must keep its kind, too: some become a
/// letter and a mark.
bool BytePairTokenizer::may_normalize_across(std::string_view text, size_t place) const {
  if (!model_.normalizes || place == 0) return false;
  size_t before = place - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  return !is_own_normalization(text.substr(before, place - before));
}

std::vector<int32_t> BytePairTokenizer::with_special_tokens(std::vector<int32_t> ids) const {
  ids.insert(ids.begin(), model_.before.begin(), model_.before.end());
  ids.insert(ids.end(), model_.after.begin(), model_.after.end());
  return ids;
}

std::optional<int32_t> BytePairTokenizer::special_token(std::string_view content) const {
  const AddedToken* const token = added_.named(content);
  return token && token->is_special ? std::optional(token->id) : std::nullopt;
}

std::vector<int32_t> BytePairTokenizer::beginning() const {
  if (model_.beginning_of_text) return {*model_.beginning_of_text};
  if (model_.end_of_text) return {*model_.end_of_text};
  const int32_t line_end = byte_tokens_['\n'];
  return {std::max(line_end, 0)};
}

bool BytePairTokenizer::has_rules_of(const Tokenizer& other) const {
  const auto* same = dynamic_cast<const BytePairTokenizer*>(&other);
  if (same == nullptr) return false;
  const BytePairModel& model = same->model_;
  const auto are_equal = [](const Merge& one, const Merge& two) {
    return one.left == two.left && one.right == two.right;
  };
  const auto is_same_token = [](const AddedToken& one, const AddedToken& two) {
    return one.id == two.id && one.is_normalized == two.is_normalized;
  };
  return model_.rule == model.rule && model_.normalizes == model.normalizes &&
         model_.takes_whole_pieces == model.takes_whole_pieces &&
         model_.adds_blank_before_text == model.adds_blank_before_text &&
         model_.end_of_text == model.end_of_text &&
         std::ranges::equal(model_.merges, model.merges, are_equal) &&
         std::ranges::is_permutation(model_.added, model.added, is_same_token);
}

std::string BytePairTokenizer::to_json() const {
  return model_.json.empty() ? byte_pair_tokenizer_json(model_) : model_.json;
}

}  // namespace lockstep
