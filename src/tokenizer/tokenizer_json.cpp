// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr const char* any_character = "[\\s\\S]";
constexpr size_t deepest = 64;

std::string spelled(const std::string& token) { return Json(token).dump().substr(0, 80); }

/// A value of the file, and what errors call it.
class Place {
 public:
  Place(const Json& value, std::string name, const std::string& origin)
      : value_(&value), name_(std::move(name)), origin_(&origin) {}

  template <class... Args>
  [[noreturn]] void refuse(const Args&... message) const {
    throw UserError(concat(*origin_, ": ", name_, " ", message...));
  }

  /// The member; a null where there is none.
  Place operator[](const std::string& key) const {
    static const Json none;
    if (!value_->is_object()) refuse("is not an object");
    const auto found = value_->find(key);
    return {found == value_->end() ? none : *found, name_ == "the file" ? key : concat(name_, ".", key),
            *origin_};
  }

  std::vector<Place> elements() const {
    if (!value_->is_array()) refuse("is not a list");
    std::vector<Place> all;
    for (const Json& element : *value_)
      all.push_back({element, concat(name_, "[", all.size(), "]"), *origin_});
    return all;
  }

  std::string text() const {
    if (!value_->is_string()) refuse("is not a string");
    return value_->get<std::string>();
  }

  int32_t id() const {
    const bool is_whole = value_->is_number_unsigned() && value_->get<uint64_t>() <= INT32_MAX;
    if (!is_whole) refuse("is not an id");
    return value_->get<int32_t>();
  }

  bool flag() const {
    if (is_null()) return false;
    if (!value_->is_boolean()) refuse("is neither true nor false");
    return value_->get<bool>();
  }

  /// As an error shows it.
  std::string shown() const { return value_->dump().substr(0, 80); }
  bool is_null() const { return value_->is_null(); }
  const Json& json() const { return *value_; }

 private:
  const Json* value_;
  std::string name_;
  const std::string* origin_;
};

/// Parses with what the library does not: a key that stands twice, and nesting that no such file has.
Json parse(std::string_view text, const std::string& origin) {
  std::vector<std::unordered_set<std::string>> keys(deepest + 1);
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const auto level = static_cast<size_t>(depth);
    require(level < deepest, origin, " is nested more than ", deepest, " deep");
    if (event == Json::parse_event_t::object_start) keys[level + 1].clear();
    if (event == Json::parse_event_t::key)
      require(keys[level].insert(parsed.get<std::string>()).second, origin, ": ", parsed.dump(),
              " stands twice in one object");
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& problem) {
    throw UserError(concat(origin, " is no JSON: damaged at byte ", problem.byte));
  } catch (const Json::out_of_range&) {
    throw UserError(concat(origin, " holds a number that no tokenizer has"));
  }
}

std::vector<std::pair<std::string, int32_t>> read_vocabulary(const Place& place) {
  if (!place.json().is_object()) place.refuse("is not an object");
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (const auto& [token, id] : place.json().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
      place.refuse("gives ", spelled(token), " the id ", id.dump());
    tokens.emplace_back(token, id.get<int32_t>());
  }
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (size_t i = 1; i < tokens.size(); ++i)
    if (tokens[i].second == tokens[i - 1].second)
      place.refuse("gives the id ", tokens[i].second, " to both ", spelled(tokens[i - 1].first), " and ",
                   spelled(tokens[i].first));
  return tokens;
}

void require_null(const Place& place) {
  if (!place.is_null()) place.refuse("is ", place.shown(), ", which is not computed here");
}

TokenizerFile read_characters(const Place& file) {
  const Place split = file["pre_tokenizer"];
  const bool is_split = !split.is_null() && split["type"].json() == "Split" &&
                        split["pattern"]["Regex"].json() == any_character &&
                        split["behavior"].json() == "Isolated" && !split["invert"].flag();
  if (!is_split)
    split.refuse("is none that WordLevel is read with: a Split into single characters (", any_character, ")");
  require_null(file["normalizer"]);
  require_null(file["post_processor"]);
  if (!file["added_tokens"].is_null() && !file["added_tokens"].elements().empty())
    file["added_tokens"].refuse("are not computed for WordLevel");
  TokenizerFile read;
  read.model = TokenizerFile::Model::characters;
  read.vocabulary = read_vocabulary(file["model"]["vocab"]);
  return read;
}

}  // namespace

TokenizerFile read_tokenizer_json(std::string_view json, const std::string& origin) {
  const Json parsed = parse(json, origin);
  const Place file(parsed, "the file", origin);
  const Place type = file["model"]["type"];
  if (type.json() == "WordLevel") return read_characters(file);
  type.refuse("is ", type.shown(), "; read are BPE, and WordLevel over characters");
}

std::string character_tokenizer_json(const std::vector<std::string>& characters) {
  nlohmann::ordered_json vocabulary = nlohmann::ordered_json::object();
  for (size_t id = 0; id < characters.size(); ++id) vocabulary.emplace(characters[id], id);
  const nlohmann::ordered_json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", nlohmann::ordered_json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", any_character}}},
        {"behavior", "Isolated"},
        {"invert", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Fuse"}}},
      // No character is this unknown token, so an unknown character is refused, as it is here.
      {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}}}};
  return file.dump(2) + "\n";
}

}  // namespace lockstep
