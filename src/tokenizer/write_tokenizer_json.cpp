// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <set>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// A file with the given parts, and nothing that would change a text.
Json file_of(const Json& pre_tokenizer, const Json& decoder, const Json& model) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", decoder},
          {"model", model}};
}

Json split(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

Json byte_level(bool adds_prefix_space, bool splits) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", adds_prefix_space},
          {"trim_offsets", true},
          {"use_regex", splits}};
}

Json added_tokens(const BytePairModel& model) {
  Json tokens = Json::array();
  for (const AddedToken& token : model.added)
    tokens.push_back({{"id", token.id},
                      {"content", token.content},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", token.is_normalized},
                      {"special", token.is_special}});
  return tokens;
}

std::string spelled(const BytePairModel& model, int32_t id) {
  return spell_bytes(model.tokens[static_cast<size_t>(id)]);
}

}  // namespace

std::string character_tokenizer_json(const std::vector<std::string>& characters) {
  Json vocabulary = Json::object();
  for (size_t id = 0; id < characters.size(); ++id) vocabulary.push_back({characters[id], id});
  // No character is this unknown token, so an unknown character is refused, as it is here.
  const Json model = {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}};
  return file_of(split("[\\s\\S]"), {{"type", "Fuse"}}, model).dump(2) + "\n";
}

std::string byte_pair_tokenizer_json(const BytePairModel& model) {
  std::set<int32_t> added;
  for (const AddedToken& token : model.added) added.insert(token.id);
  // Filled as the vector of pairs that it is: ordered_json would look for each key among all others.
  Json vocabulary = Json::object();
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (size_t id = 0; id < model.tokens.size(); ++id)
    if (!model.tokens[id].empty() && !added.contains(static_cast<int32_t>(id)))
      static_cast<Json::object_t::Container&>(entries).emplace_back(spell_bytes(model.tokens[id]), id);
  Json merges = Json::array();
  for (const Merge& merge : model.merges)
    merges.push_back({spelled(model, merge.left), spelled(model, merge.right)});
  Json pre_tokenizer = byte_level(model.adds_blank_before_text, true);
  if (model.rule != SplitRule::gpt2)
    pre_tokenizer = {{"type", "Sequence"},
                     {"pretokenizers", {split(split_pattern(model.rule)), byte_level(false, false)}}};
  Json file = file_of(pre_tokenizer, byte_level(true, true),
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", model.takes_whole_pieces},
                       {"vocab", vocabulary},
                       {"merges", merges}});
  file["added_tokens"] = added_tokens(model);
  file["post_processor"] = byte_level(true, true);
  return file.dump(2) + "\n";
}

}  // namespace lockstep
