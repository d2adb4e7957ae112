// SPDX-License-Identifier: Apache-2.0
#include "lockstep/writing/write_texts.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

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

WrittenText::WrittenText(std::vector<std::string> stop_texts, TextSink sink)
    : stop_texts_(std::move(stop_texts)), sink_(std::move(sink)) {
  for (const std::string& stop : stop_texts_) require(!stop.empty(), "stop: a stop text must not be empty");
}

bool WrittenText::add(std::string_view bytes) {
  held_ += bytes;
  size_t first = std::string::npos;
  for (const std::string& stop : stop_texts_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    hand_out(first, true);
    held_.clear();
    return false;
  }
  hand_out(held_.size() - possible_stop(), false);
  return true;
}

void WrittenText::finish() { hand_out(held_.size(), true); }

size_t WrittenText::possible_stop() const {
  size_t most = 0;
  for (const std::string& stop : stop_texts_)
    for (size_t count = std::min(held_.size(), stop.size() - 1); count > most; --count)
      if (held_.ends_with(std::string_view(stop).substr(0, count))) most = count;
  return most;
}

void WrittenText::hand_out(size_t bytes, bool is_end) {
  const std::string_view whole = std::string_view(held_).substr(0, bytes);
  std::string piece;
  size_t taken = 0;
  while (taken < whole.size()) {
    const Utf8Character next = first_character(whole.substr(taken));
    if (next.state == Utf8Character::State::cut && !is_end) break;
    piece += next.is_valid() ? whole.substr(taken, next.bytes) : replacement;
    taken += next.bytes;
  }
  held_.erase(0, taken);
  text_ += piece;
  if (sink_ && !piece.empty()) sink_(piece);
}

const char* name(Finish finish) {
  constexpr std::array names = {"length", "end_of_text", "stop", "interrupted"};
  return names.at(static_cast<size_t>(finish));
}

std::vector<TextContinuation> write_texts(
    TextModel& model, const Tokenizer& tokenizer, const std::vector<TextPrompt>& prompts,
    const BatchLimits& limits, const std::function<void(size_t, const TextContinuation&)>& on_finish) {
  std::vector<WrittenText> written;
  std::vector<Prompt> tokens;
  written.reserve(prompts.size());
  for (const TextPrompt& prompt : prompts) {
    WrittenText& text = written.emplace_back(prompt.stop_texts, prompt.sink);
    std::vector<int32_t> ids =
        prompt.text.empty() ? tokenizer.beginning() : tokenizer.encode(prompt.text, prompt.source);
    require(!ids.empty(), prompt.source, " has no tokens");
    Prompt& next = tokens.emplace_back(Prompt{.ids = std::move(ids), .options = prompt.options});
    next.options.symbols = tokenizer.vocabulary_size();
    next.options.end_of_text = tokenizer.end_of_text();
    next.on_token = [&text, &tokenizer](int32_t id) { return text.add(tokenizer.decode(std::array{id})); };
  }
  std::vector<TextContinuation> results(prompts.size());
  generate(model, tokens, limits, [&](size_t index, const Continuation& continuation) {
    written[index].finish();
    results[index] = {.text = written[index].text(),
                      .ids = continuation.ids,
                      .prompt_tokens = std::ssize(tokens[index].ids),
                      .finish = continuation.finish};
    if (on_finish) on_finish(index, results[index]);
  });
  return results;
}

std::string write_text(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& prompt,
                       const GenerateOptions& options) {
  const std::string beginning = prompt.empty() ? tokenizer.decode(tokenizer.beginning()) : prompt;
  const TextPrompt text{.text = prompt, .source = "--prompt", .options = options};
  return beginning + write_texts(*make_text_model(model), tokenizer, {text})[0].text;
}

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
