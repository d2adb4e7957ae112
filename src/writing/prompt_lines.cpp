// SPDX-License-Identifier: Apache-2.0
#include "writing/prompt_lines.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "tokenizer/parse_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// One value of a line with its place for errors.
struct Field {
  const Json& value;
  std::string place;  ///< "prompts.jsonl, line 3: "
  std::string key;

  void require_is(bool is_right, const char* what) const {
    require(is_right, place, key, " is ", value.dump(-1, ' ', false, Json::error_handler_t::replace),
            ": it must be ", what);
  }
  std::string text() const {
    require_is(value.is_string(), "a text");
    return value.get<std::string>();
  }
  double number() const {
    require_is(value.is_number(), "a number");
    return value.get<double>();
  }
  int64_t count() const {
    require_is(
        value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX),
        "a whole number");
    return value.get<int64_t>();
  }
  uint64_t seed() const {
    require_is(value.is_number_unsigned(), "a whole number, 0 or more");
    return value.get<uint64_t>();
  }
  std::vector<std::string> texts() const {
    require_is(value.is_string() || value.is_array(), "a text, or a list of texts");
    std::vector<std::string> list;
    if (value.is_string()) list.push_back(value.get<std::string>());
    if (value.is_array())
      for (const Json& item : value) list.push_back(Field{item, place, key}.text());
    for (const std::string& item : list) require_is(!item.empty(), "texts that are not empty");
    return list;
  }
};

using Reader = void (*)(PromptLine&, const Field&);
const std::map<std::string, Reader> readers = {
    {"prompt", [](PromptLine& line, const Field& field) { line.prompt.text = field.text(); }},
    {"id", [](PromptLine& line, const Field& field) { line.id = field.value.dump(); }},
    {"max_new_tokens",
     [](PromptLine& line, const Field& field) { line.prompt.options.tokens = field.count(); }},
    {"temperature",
     [](PromptLine& line, const Field& field) { line.prompt.options.temperature = field.number(); }},
    {"top_k", [](PromptLine& line, const Field& field) { line.prompt.options.top_k = field.count(); }},
    {"top_p", [](PromptLine& line, const Field& field) { line.prompt.options.top_p = field.number(); }},
    {"repetition_penalty",
     [](PromptLine& line, const Field& field) { line.prompt.options.repetition_penalty = field.number(); }},
    {"seed",
     [](PromptLine& line, const Field& field) {
       line.prompt.options.seed = field.seed();
       line.prompt.options.prompt = 0;  // the draws depend on the seed, not on the line's position
     }},
    {"stop", [](PromptLine& line, const Field& field) { line.prompt.stop_texts = field.texts(); }},
};

std::string known_keys() {
  std::vector<std::string> keys;
  for (const auto& [key, reader] : readers) keys.push_back(key);
  return joined(keys);
}

PromptLine read_line(std::string_view text, const std::string& source, const PromptLine& defaults) {
  const Json json = parse_json<Json>(text, source);
  const std::string place = source + ": ";
  require(json.is_object(), place, "not a JSON object such as {\"prompt\": \"Once\"}");
  PromptLine line = defaults;
  for (const auto& [key, value] : json.items()) {
    const auto reader = readers.find(key);
    require(reader != readers.end(), place, "the key ", key, " is unknown; the keys are ", known_keys());
    reader->second(line, Field{value, place, key});
  }
  require(json.contains("prompt"), place, "there is no prompt");
  require_valid(line.prompt.options, place);
  line.prompt.source = concat(place, "prompt");
  return line;
}

}  // namespace

std::vector<PromptLine> read_prompt_lines(std::string_view text, const std::string& source,
                                          const TextPrompt& defaults) {
  std::vector<PromptLine> lines;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    PromptLine start{.prompt = defaults, .id = ""};
    start.prompt.options.prompt = static_cast<uint32_t>(lines.size());
    lines.push_back(read_line(line, concat(source, ", line ", number), start));
  }
  return lines;
}

std::string to_json_line(const PromptLine& line, const TextContinuation& continuation) {
  Json json;
  if (!line.id.empty()) json["id"] = Json::parse(line.id);
  json["prompt"] = line.prompt.text;
  json["text"] = continuation.text;
  json["tokens"] = continuation.ids;
  json["prompt_tokens"] = continuation.prompt_tokens;
  json["finish_reason"] = name(continuation.finish);
  return json.dump();
}

}  // namespace lockstep
