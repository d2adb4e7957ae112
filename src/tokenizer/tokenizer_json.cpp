// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/tokenizer/utf8.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using Field = JsonField<Json>;

constexpr const char* any_character = "[\\s\\S]";
constexpr size_t most_bytes = size_t{256} << 20;

std::string spelled(const std::string& token) { return shown_json(Json(token)); }

std::vector<std::pair<std::string, int32_t>> read_vocabulary(const Field& place) {
  if (!place.json().is_object()) place.refuse("is not an object of tokens and their ids");
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (const auto& [token, id] : place.json().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
      place.refuse("gives ", spelled(token), " the id ", shown_json(id));
    tokens.emplace_back(token, id.get<int32_t>());
  }
  std::ranges::sort(tokens, {}, &std::pair<std::string, int32_t>::second);
  for (size_t i = 1; i < tokens.size(); ++i)
    if (tokens[i].second == tokens[i - 1].second)
      place.refuse("gives the id ", tokens[i].second, " to both ", spelled(tokens[i - 1].first), " and ",
                   spelled(tokens[i].first));
  return tokens;
}

/// Refuses a setting that would change the ids and is not supported.
void require_off(const Field& place) {
  const Json& value = place.json();
  const bool is_off = value.is_null() || value == false || value == 0.0 || value == Json(std::string());
  if (!is_off) place.refuse("is ", place.shown(), ", which is not supported");
}

TokenizerFile read_characters(const Field& file) {
  const Field split = file["pre_tokenizer"];
  const bool is_split = !split.is_null() && split["type"].json() == "Split" &&
                        split["pattern"]["Regex"].json() == any_character &&
                        split["behavior"].json() == "Isolated" && !split["invert"].flag();
  if (!is_split) split.refuse("must be, for WordLevel, a Split into single characters (", any_character, ")");
  require_off(file["normalizer"]);
  require_off(file["post_processor"]);
  if (!file["added_tokens"].is_null() && !file["added_tokens"].elements().empty())
    file["added_tokens"].refuse("are not supported for WordLevel");
  TokenizerFile read;
  read.model = TokenizerFile::Model::characters;
  read.vocabulary = read_vocabulary(file["model"]["vocab"]);
  return read;
}

void read_pattern(const Field& split, TokenizerFile& file) {
  const Field pattern = split["pattern"]["Regex"];
  const std::optional<SplitRule> rule = split_rule_of(pattern.text());
  if (!rule)
    pattern.refuse("is not a supported pattern (GPT-2, cl100k, Llama 3, Qwen 2, o200k): ", pattern.shown());
  // Every character is part of a match, so the inverted Removed equals Isolated.
  const std::string behavior = split["behavior"].text();
  const bool is_isolated = behavior == "Isolated" || (behavior == "Removed" && split["invert"].flag());
  if (!is_isolated) split["behavior"].refuse("is ", split["behavior"].shown(), ", which is not supported");
  file.rule = *rule;
}

void read_pre_tokenizer(const Field& place, TokenizerFile& file) {
  const std::string type = place["type"].text();
  if (type == "ByteLevel") {
    if (!place["use_regex"].flag(true)) place.refuse("splits nothing, which is not supported");
    file.adds_prefix_space = place["add_prefix_space"].flag(true);
    return;
  }
  if (type != "Sequence")
    place.refuse("is ", place["type"].shown(), "; supported are ByteLevel, and a Split or Digits before it");
  const std::vector<Field> parts = place["pretokenizers"].elements();
  const bool has_bytes = parts.size() == 2 && parts[1]["type"].json() == "ByteLevel";
  const bool splits = has_bytes && parts[1]["use_regex"].flag(true);
  const bool has_digits =
      splits && parts[0]["type"].json() == "Digits" && parts[0]["individual_digits"].flag();
  const bool has_pattern = has_bytes && !splits && parts[0]["type"].json() == "Split";
  if (!has_digits && !has_pattern)
    place.refuse(
        "is neither a Split and a ByteLevel without use_regex, nor Digits of individual_digits and a "
        "ByteLevel with it");
  require_off(parts[1]["add_prefix_space"]);
  if (has_pattern) read_pattern(parts[0], file);
  if (has_digits) file.rule = SplitRule::digits;
}

/// Reads an added token without its id.
AddedToken read_added_token(const Field& entry) {
  AddedToken token;
  token.content = entry["content"].text();
  if (token.content.empty()) entry["content"].refuse("is empty");
  token.is_special = entry["special"].flag();
  token.is_normalized = entry["normalized"].flag(!token.is_special);
  for (const char* name : {"lstrip", "rstrip", "single_word"}) require_off(entry[name]);
  return token;
}

void read_added_tokens(const Field& place, TokenizerFile& file) {
  if (place.is_null()) return;
  for (const Field& entry : place.elements()) {
    file.added.push_back({entry.name(), read_added_token(entry)});
    file.added.back().token.id = entry["id"].whole<int32_t>(0);
  }
}

/// Reads "single" of a TemplateProcessing: special tokens before and after the text.
void read_template(const Field& place, TokenizerFile& file) {
  bool has_text = false;
  for (const Field& part : place["single"].elements()) {
    if (!part["Sequence"].is_null()) {
      if (has_text) part.refuse("has the text a second time");
      has_text = true;
      continue;
    }
    const std::string name = part["SpecialToken"]["id"].text();
    for (const Field& id : place["special_tokens"][name]["ids"].elements())
      (has_text ? file.after : file.before).push_back(id.whole<int32_t>(0));
  }
  if (!has_text) place["single"].refuse("has no place for the text");
}

void read_post_processor(const Field& place, TokenizerFile& file) {
  if (place.is_null()) return;
  const std::string type = place["type"].text();
  if (type == "ByteLevel") return;
  if (type == "TemplateProcessing") return read_template(place, file);
  if (type != "Sequence")
    place.refuse("is ", place["type"].shown(), "; supported are ByteLevel, TemplateProcessing, and both");
  for (const Field& part : place["processors"].elements()) {
    const std::string name = part["type"].text();
    if (name == "TemplateProcessing" && file.before.empty() && file.after.empty())
      read_template(part, file);
    else if (name != "ByteLevel")
      part.refuse("is ", part["type"].shown(), ", which is not supported");
  }
}

void read_merges(const Field& place, TokenizerFile& file) {
  for (const Field& merge : place.elements()) {
    if (merge.json().is_array()) {
      const std::vector<Field> parts = merge.elements();
      if (parts.size() != 2) merge.refuse("is not two tokens");
      file.merges.push_back({parts[0].text(), parts[1].text()});
      continue;
    }
    const std::string both = merge.text();
    const size_t blank = both.find(' ');
    if (std::ranges::count(both, ' ') != 1)
      merge.refuse("is not two tokens with a blank between them: ", merge.shown());
    file.merges.push_back({both.substr(0, blank), both.substr(blank + 1)});
  }
}

void read_normalizer(const Field& place, TokenizerFile& file) {
  if (place.is_null()) return;
  const Field type = place["type"];
  if (type.json() == "Sequence") {
    for (const Field& part : place["normalizers"].elements()) read_normalizer(part, file);
    return;
  }
  if (type.json() != "NFC") place.refuse("is ", type.shown(), "; the only supported normalizer is NFC");
  file.normalizes = true;
}

TokenizerFile read_byte_pairs(const Field& file) {
  TokenizerFile read;
  read_normalizer(file["normalizer"], read);
  require_off(file["truncation"]);
  if (!file["padding"].is_null() && file["padding"]["strategy"].json() != "BatchLongest")
    file["padding"].refuse("is to a fixed length, which is not supported");
  const Field decoder = file["decoder"]["type"];
  if (decoder.json() != "ByteLevel") decoder.refuse("is ", decoder.shown(), "; only ByteLevel is supported");
  const Field model = file["model"];
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
    require_off(model[name]);
  read_pre_tokenizer(file["pre_tokenizer"], read);
  read_post_processor(file["post_processor"], read);
  read_added_tokens(file["added_tokens"], read);
  read.ignores_merges = model["ignore_merges"].flag();
  read.vocabulary = read_vocabulary(model["vocab"]);
  read_merges(model["merges"], read);
  read.name_of_merge = [merges = model["merges"].name()](size_t i) { return concat(merges, "[", i, "]"); };
  return read;
}

AddedToken read_special_token(const Field& place) {
  AddedToken token{.content = place.json().is_object() ? "" : place.text(), .is_special = true};
  if (place.json().is_object()) {
    token = read_added_token(place);
    token.is_special = true;
    token.is_normalized = place["normalized"].flag();
  }
  if (token.content.empty()) place.refuse("is empty");
  return token;
}

void read_special_tokens(const Field& file, TokenizerConfig& config) {
  for (const char* key :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (!file.has(key)) continue;
    config.named.insert(key);
    const Field place = file[key];
    config.special.erase(key);
    if (!place.is_null()) config.special.emplace(key, NamedToken{place.name(), read_special_token(place)});
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Field list = file[key];
    if (list.is_null() || list.json() == Json::object()) continue;
    for (const Field& element : list.elements()) {
      const AddedToken token = read_special_token(element);
      config.special.insert_or_assign(token.content, NamedToken{element.name(), token});
    }
  }
}

/// Returns the template of conversations. Of several with names it is the default one.
std::string read_chat_template(const Field& place) {
  if (place.is_null()) return "";
  if (!place.json().is_array()) return place.text();
  for (const Field& named : place.elements())
    if (named["name"].json() == "default") return named["template"].text();
  return "";
}

}  // namespace

TokenizerFile read_tokenizer_json(std::string_view json, const std::string& origin) {
  const Field file(json, origin, most_bytes);
  if (file["model"].is_null()) file["model"].refuse("is missing: this is not a tokenizer.json");
  const Field type = file["model"]["type"];
  if (type.json() == "WordLevel") return read_characters(file);
  // Files of the first versions of `tokenizers` do not name the model's type.
  const bool has_merges = type.is_null() && !file["model"]["merges"].is_null();
  if (type.json() == "BPE" || has_merges) return read_byte_pairs(file);
  type.refuse("is ", type.shown(), "; supported are BPE, and WordLevel over characters");
}

TokenizerConfig read_tokenizer_config(std::string_view json, const std::string& origin) {
  const Field file(json, origin, most_bytes);
  TokenizerConfig config;
  config.origin = origin;
  read_special_tokens(file, config);
  require_off(file["split_special_tokens"]);
  const Field blank = file["add_prefix_space"];
  if (!blank.is_null()) config.adds_prefix_space = blank.flag();
  config.chat_template = read_chat_template(file["chat_template"]);
  const Field type = file["tokenizer_class"];
  if (!type.is_null()) config.tokenizer_class = type.text();
  for (const char* key : {"add_bos_token", "add_eos_token"})
    if (file[key].flag()) config.adds_ends = key;
  const Field decoder = file["added_tokens_decoder"];
  config.has_added = !decoder.is_null();
  if (!config.has_added) return config;
  if (!decoder.json().is_object()) decoder.refuse("is not an object of ids and their tokens");
  for (const auto& [id, ignored] : decoder.json().items()) {
    const auto number = number_in<int32_t>(id);
    if (!number || *number < 0) decoder.refuse("has ", spelled(id), ", which is not an id");
    AddedToken token = read_added_token(decoder[id]);
    token.id = *number;
    config.added.push_back({decoder[id].name(), token});
  }
  std::ranges::sort(config.added, {}, [](const NamedToken& added) { return added.token.id; });
  return config;
}

void read_special_tokens_map(std::string_view json, const std::string& origin, TokenizerConfig& config) {
  read_special_tokens(Field(json, origin, most_bytes), config);
}

void read_added_tokens_map(std::string_view json, const std::string& origin, TokenizerConfig& config) {
  for (const auto& [content, id] : read_vocabulary(Field(json, origin, most_bytes))) {
    require(!content.empty(), origin, ": the token with id ", id, " is empty");
    bool is_special = false;
    for (const auto& [key, special] : config.special)
      is_special = is_special || special.token.content == content;
    config.added.push_back(
        {origin, {.id = id, .content = content, .is_special = is_special, .is_normalized = !is_special}});
  }
}

TokenizerFile read_vocabulary_and_merges(std::string_view vocabulary, const std::string& vocabulary_origin,
                                         std::string_view merges, const std::string& merges_origin) {
  TokenizerFile read;
  read.vocabulary = read_vocabulary(Field(vocabulary, vocabulary_origin, most_bytes));
  merges = without_byte_order_mark(merges);
  const size_t first_line = merges.starts_with("#version") ? 2 : 1;
  read.name_of_merge = [=](size_t i) { return concat(merges_origin, ": line ", i + first_line); };
  std::istringstream lines{std::string(merges)};
  std::string line;
  if (first_line == 2) std::getline(lines, line);
  while (std::getline(lines, line)) {
    if (line.ends_with('\r')) line.pop_back();
    require(std::ranges::count(line, ' ') == 1, read.name_of_merge(read.merges.size()),
            " is not two tokens with a blank between them");
    const size_t blank = line.find(' ');
    read.merges.push_back({line.substr(0, blank), line.substr(blank + 1)});
  }
  return read;
}

}  // namespace lockstep
