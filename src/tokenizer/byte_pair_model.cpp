// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/byte_pair_model.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/core/error.h"
#include "lockstep/tokenizer/tokenizer_json.h"
#include "lockstep/tokenizer/utf8.h"
#include "lockstep/unicode/normalization.h"

namespace lockstep {
namespace {

constexpr char32_t letters = 0x144;  // one past the last

/// The spellings of all bytes, and the bytes that letters spell; -1: none.
struct ByteAlphabet {
  std::array<std::string, 256> spelling;
  std::array<int, letters> byte;
};

bool shows(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

const ByteAlphabet& alphabet() {
  static const ByteAlphabet made = [] {
    ByteAlphabet alphabet;
    alphabet.byte.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t letter = shows(byte) ? static_cast<char32_t>(byte) : next++;
      alphabet.spelling[static_cast<size_t>(byte)] = encode_utf8(letter);
      alphabet.byte[letter] = byte;
    }
    return alphabet;
  }();
  return made;
}

/// Returns the bytes of a spelling by spell_bytes(), or nothing if a character spells no byte.
std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Character next = first_character(spelling);
    const char32_t letter = next.code_point;  // U+0000 of an invalid character spells no byte
    if (letter >= letters || alphabet().byte[letter] < 0) return {};
    bytes += static_cast<char>(alphabet().byte[letter]);
    spelling.remove_prefix(next.bytes);
  }
  return bytes;
}

/// The id of each spelled token of the vocabulary.
using Ids = std::unordered_map<std::string_view, int32_t>;

std::string shown(const std::string& token) { return concat("\"", token.substr(0, 60), "\""); }

/// Returns the number of ids. Throws UserError if it is more than twice the number of tokens + 1024: such an
/// id is a damaged number.
size_t count_ids(const TokenizerFile& file, const std::string& origin) {
  size_t ids = file.vocabulary.empty() ? 0 : static_cast<size_t>(file.vocabulary.back().second) + 1;
  for (const auto& [name, token] : file.added) ids = std::max(ids, static_cast<size_t>(token.id) + 1);
  const size_t tokens = file.vocabulary.size() + file.added.size();
  require(tokens > 0, origin, ": model.vocab has no tokens");
  require(ids <= 2 * tokens + 1024, origin, ": the id ", ids - 1, " is too large for ", tokens, " tokens");
  return ids;
}

void place_vocabulary(const TokenizerFile& file, const std::string& origin, BytePairModel& model) {
  std::unordered_set<std::string_view> added;
  for (const auto& [name, token] : file.added) added.insert(token.content);
  for (const auto& [token, id] : file.vocabulary) {
    std::string& place = model.tokens[static_cast<size_t>(id)];
    if (const auto bytes = unspell_bytes(token)) {
      place = *bytes;
      require(!place.empty(), origin, ": the token with id ", id, " is empty");
      continue;
    }
    require(added.contains(token), origin, ": model.vocab has ", shown(token),
            ", which is not spelled in GPT-2's alphabet of bytes");
    place = token;
  }
}

/// Adds the added tokens. `tokenizers` gives tokens outside the vocabulary the next ids in order and ignores
/// the ids in the file. A file with other ids is therefore refused.
void place_added_tokens(const TokenizerFile& file, const Ids& ids, BytePairModel& model) {
  std::set<int32_t> used;
  std::unordered_set<std::string_view> contents;
  auto next = static_cast<int32_t>(file.vocabulary.size());
  for (const auto& [name, token] : file.added) {
    const auto known = ids.find(token.content);
    require(known == ids.end() || known->second == token.id, name, " gives ", shown(token.content),
            " the id ", token.id, ", but the vocabulary gives it another id");
    std::string& place = model.tokens[static_cast<size_t>(token.id)];
    const bool is_free = used.insert(token.id).second && (known != ids.end() || place.empty());
    require(is_free, name, " has the id ", token.id, ", which belongs to another token");
    require(contents.insert(token.content).second, name, " is ", shown(token.content),
            ", which is already an added token");
    require(known != ids.end() || token.id == next, name, " gives ", shown(token.content), " the id ",
            token.id, ", but it is not in the vocabulary, and the next id is ", next);
    next = std::max(next, token.id + 1);
    place = token.content;
    model.added.push_back(token);
    if (file.normalizes && token.is_normalized) model.added.back().content = normalized(token.content);
  }
}

void resolve_merges(const TokenizerFile& file, const Ids& ids, BytePairModel& model) {
  std::unordered_set<uint64_t> seen;
  for (size_t i = 0; i < file.merges.size(); ++i) {
    const std::string& left = file.merges[i][0];
    const std::string& right = file.merges[i][1];
    const auto id_of = [&](const std::string& token) {
      const auto found = ids.find(token);
      require(found != ids.end(), file.name_of_merge(i), " merges ", shown(left), " and ", shown(right),
              ", but ", shown(token), " is not in the vocabulary");
      return found->second;
    };
    require(!left.empty() && !right.empty(), file.name_of_merge(i), " merges an empty token");
    const Merge merge{id_of(left), id_of(right), static_cast<int32_t>(i), id_of(left + right)};
    const uint64_t pair =
        uint64_t{static_cast<uint32_t>(merge.left)} << 32 | static_cast<uint32_t>(merge.right);
    require(seen.insert(pair).second, file.name_of_merge(i), " merges ", shown(left), " and ", shown(right),
            " a second time");
    model.merges.push_back(merge);
  }
}

void require_ids_exist(const std::vector<int32_t>& ids, const BytePairModel& model,
                       const std::string& origin) {
  for (int32_t id : ids)
    require(static_cast<size_t>(id) < model.tokens.size() && !model.tokens[static_cast<size_t>(id)].empty(),
            origin, ": post_processor has the token id ", id, ", which does not exist");
}

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) spelling += alphabet().spelling[static_cast<unsigned char>(byte)];
  return spelling;
}

BytePairModel byte_pair_model(const TokenizerFile& file, const std::string& origin) {
  BytePairModel model;
  model.tokens.resize(count_ids(file, origin));
  Ids ids;
  for (const auto& [token, id] : file.vocabulary) ids.emplace(token, id);
  place_vocabulary(file, origin, model);
  place_added_tokens(file, ids, model);
  resolve_merges(file, ids, model);
  require_ids_exist(file.before, model, origin);
  require_ids_exist(file.after, model, origin);
  model.normalizes = file.normalizes;
  model.rule = file.rule;
  model.takes_whole_pieces = file.ignores_merges;
  model.adds_blank_before_text = file.adds_prefix_space;
  model.before = file.before;
  model.after = file.after;
  return model;
}

}  // namespace lockstep
