// SPDX-License-Identifier: Apache-2.0
#include "writing/prompt_lines.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/text.h"
#include "json/json_field.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Field = JsonField<Json>;

constexpr size_t most_line_bytes = size_t{16} << 20;

/// Returns a text or a list of texts. None may be empty.
std::vector<std::string> texts_of(const Field& field) {
  std::vector<std::string> texts;
  field.require_is(field.json().is_string() || field.json().is_array(), "a text or a list of texts");
  if (field.json().is_string())
    texts.push_back(field.text());
  else
    for (const Field& element : field.elements()) texts.push_back(element.text());
  field.require_is(std::ranges::count(texts, "") == 0, "texts that are not empty");
  return texts;
}

using Reader = void (*)(PromptLine&, const Field&);
const std::map<std::string, Reader> readers = {
    {"prompt", [](auto& line, auto& field) { line.prompt.text = field.text(); }},
    {"id", [](auto& line, auto& field) { line.id = field.json().dump(); }},
    {"max_new_tokens", [](auto& line, auto& field) { line.prompt.options.tokens = field.whole(); }},
    {"temperature", [](auto& line, auto& field) { line.prompt.options.temperature = field.number(); }},
    {"top_k", [](auto& line, auto& field) { line.prompt.options.top_k = field.whole(); }},
    {"top_p", [](auto& line, auto& field) { line.prompt.options.top_p = field.number(); }},
    {"repetition_penalty",
     [](auto& line, auto& field) { line.prompt.options.repetition_penalty = field.number(); }},
    {"seed",
     [](PromptLine& line, const Field& field) {
       line.prompt.options.seed = field.whole<uint64_t>();
       line.prompt.options.prompt = 0;  // the draws depend on the seed, not on the line's position
     }},
    {"stop", [](auto& line, auto& field) { line.prompt.stop_texts = texts_of(field); }},
};

std::string known_keys() {
  std::vector<std::string> keys;
  for (const auto& [key, reader] : readers) keys.push_back(key);
  return joined(keys);
}

PromptLine read_line(std::string_view text, const std::string& source, const PromptLine& defaults) {
  const Field object(text, source, most_line_bytes);
  object.require_is(object.json().is_object(), "an object such as {\"prompt\": \"Once\"}");
  PromptLine line = defaults;
  for (const auto& [key, value] : object.members()) {
    const auto reader = readers.find(key);
    require(reader != readers.end(), source, ": the key ", shortened(key), " is unknown; the keys are ",
            known_keys());
    reader->second(line, value);
  }
  require(object.has("prompt"), source, ": there is no prompt");
  require_valid(line.prompt.options, source + ": ");
  line.prompt.source = source + ": prompt";
  return line;
}

}  // namespace

std::vector<PromptLine> read_prompt_lines(std::string_view text, const std::string& source,
                                          const TextPrompt& defaults) {
  std::vector<PromptLine> lines;
  std::istringstream stream{std::string(text)};
  size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    PromptLine start{.prompt = defaults, .id = ""};
    start.prompt.options.prompt = static_cast<uint32_t>(lines.size());
    lines.push_back(read_line(line, concat(source, ", line ", number), start));
  }
  return lines;
}

std::string to_json_line(const PromptLine& line, const TextContinuation& continuation) {
  Json json;
  if (!line.id.empty()) json["id"] = parse_json<Json>(line.id, "id", most_line_bytes);
  json["prompt"] = line.prompt.text;
  json["text"] = continuation.text;
  json["tokens"] = continuation.ids;
  json["prompt_tokens"] = continuation.prompt_tokens;
  json["finish_reason"] = name(continuation.finish);
  return json.dump();
}

}  // namespace lockstep
