// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/write_tokenizer_json.h"

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Returns a file with the given parts and without any part that would change a text.
OrderedJson file_of(const OrderedJson& pre_tokenizer, const OrderedJson& decoder, const OrderedJson& model) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", OrderedJson::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", decoder},
          {"model", model}};
}

/// Returns the ids of the spellings that are not empty.
OrderedJson vocabulary_of(const std::vector<std::string>& spellings) {
  // Appends to the underlying vector of pairs: ordered_json would search all keys at each insertion.
  OrderedJson vocabulary = OrderedJson::object();
  OrderedJson::object_t::Container& entries = vocabulary.get_ref<OrderedJson::object_t&>();
  for (size_t id = 0; id < spellings.size(); ++id)
    if (!spellings[id].empty()) entries.emplace_back(spellings[id], id);
  return vocabulary;
}

OrderedJson split(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

OrderedJson byte_level(bool adds_prefix_space, bool splits) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", adds_prefix_space},
          {"trim_offsets", true},
          {"use_regex", splits}};
}

OrderedJson added_tokens(const BytePairModel& model) {
  OrderedJson tokens = OrderedJson::array();
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

}  // namespace

std::string character_tokenizer_json(const std::vector<std::string>& characters) {
  const OrderedJson vocabulary = vocabulary_of(characters);
  // "<unk>" is not in the vocabulary, so other readers refuse an unknown character, as CharTokenizer does.
  const OrderedJson model = {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}};
  return file_of(split("[\\s\\S]"), {{"type", "Fuse"}}, model).dump(2) + "\n";
}

std::string byte_pair_tokenizer_json(const BytePairModel& model) {
  // The vocabulary also has the added tokens verbatim. Otherwise `tokenizers` would give them its own ids.
  std::vector<std::string> spellings;
  for (const std::string& token : model.tokens) spellings.push_back(spell_bytes(token));
  for (const AddedToken& token : model.added) spellings[static_cast<size_t>(token.id)] = token.content;
  const OrderedJson vocabulary = vocabulary_of(spellings);
  OrderedJson merges = OrderedJson::array();
  for (const Merge& merge : model.merges)
    merges.push_back(
        {spellings[static_cast<size_t>(merge.left)], spellings[static_cast<size_t>(merge.right)]});
  OrderedJson pre_tokenizer = byte_level(model.adds_blank_before_text, true);
  const OrderedJson digits = {{"type", "Digits"}, {"individual_digits", true}};
  const bool has_digits = model.rule == SplitRule::digits;
  if (model.rule != SplitRule::gpt2)
    pre_tokenizer = {
        {"type", "Sequence"},
        {"pretokenizers",
         {has_digits ? digits : split(split_pattern(model.rule)), byte_level(false, has_digits)}}};
  OrderedJson file = file_of(pre_tokenizer, byte_level(true, true),
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
  if (model.normalizes) file["normalizer"] = {{"type", "NFC"}};
  return file.dump() + "\n";
}

std::string tokenizer_config_json(const Tokenizer& tokenizer, std::optional<int64_t> most_tokens) {
  OrderedJson config;
  const auto text_of = [&](int32_t id) { return tokenizer.decode(std::vector<int32_t>{id}); };
  if (const auto id = tokenizer.beginning_of_text()) config["bos_token"] = text_of(*id);
  if (const auto id = tokenizer.end_of_text()) config["eos_token"] = text_of(*id);
  if (!tokenizer.chat_template().empty()) config["chat_template"] = tokenizer.chat_template();
  config["clean_up_tokenization_spaces"] = false;
  if (most_tokens) config["model_max_length"] = *most_tokens;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config.dump(2) + "\n";
}

}  // namespace lockstep
