// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/example_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/tokenizer/utf8.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using Field = JsonField<Json>;

constexpr size_t most_line_bytes = size_t{256} << 20;

/// The words for each role: those of `messages`, and those of `conversations` ("from").
constexpr std::array<std::pair<const char*, ChatMessage::Role>, 5> known_roles = {
    {{"system", ChatMessage::Role::system},
     {"user", ChatMessage::Role::user},
     {"assistant", ChatMessage::Role::assistant},
     {"human", ChatMessage::Role::user},
     {"gpt", ChatMessage::Role::assistant}}};

std::string accepted_keys() {
  return concat("\"prompt\" and \"answer\", \"text\", \"messages\", or \"instruction\" and \"output\"; ",
                option_name("columns"), " names others");
}

std::string text_of(const Field& field) {
  std::string text = field.text();
  if (text.empty()) field.refuse("is empty");
  return text;
}

/// Returns the keys of an object for an error.
std::string keys_of(const Field& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.json().items()) keys.push_back(Json(key).dump());
  return keys.empty() ? "no keys"
                      : concat(keys.size() == 1 ? "the key " : "the keys ", shortened(joined(keys)));
}

/// Refuses keys with contents that a template would show the model.
void refuse_contents(const Field& object, const std::vector<const char*>& keys) {
  for (const char* key : keys) {
    const Field value = object[key];
    const Json& json = value.json();
    const bool is_empty = json == false || json == Json(std::string()) || json.empty();
    if (!is_empty) value.refuse("is ", value.shown(), ", which is not supported in a conversation");
  }
}

ChatMessage message_of(const Field& object) {
  object.require_is(object.json().is_object(), "an object with \"role\" and \"content\"");
  const bool has_role = object.has("role") && object.has("content");
  if (!has_role && !(object.has("from") && object.has("value")))
    object.refuse("has ", keys_of(object),
                  ": a message has \"role\" and \"content\", or \"from\" and \"value\"");
  refuse_contents(object, {"tool_calls", "function_call", "reasoning_content", "thinking"});
  const Field role = object[has_role ? "role" : "from"], content = object[has_role ? "content" : "value"];
  const std::string name = role.text();
  const auto known = std::ranges::find_if(known_roles, [&](const auto& one) { return name == one.first; });
  if (known == known_roles.end()) role.refuse("is ", role.shown(), ": it must be system, user or assistant");
  const bool learns = known->second == ChatMessage::Role::assistant;
  return {.role = known->second, .content = learns ? text_of(content) : content.text()};
}

Example conversation_of(const Field& list) {
  Example example;
  example.kind = Example::Kind::conversation;
  for (const Field& message : list.elements()) example.messages.push_back(message_of(message));
  if (std::ranges::count(example.messages, ChatMessage::Role::assistant, &ChatMessage::role) == 0)
    list.refuse("has no message of the assistant, whose messages are learned");
  return example;
}

/// Returns the prompt of Alpaca (github.com/tatsu-lab/stanford_alpaca) for an instruction and its output.
Example instruction_of(const Field& object) {
  const Field given = object["input"];
  const std::string input = given.is_null() ? "" : given.text();
  const std::string prompt = concat(
      "Below is an instruction that describes a task",
      input.empty() ? "" : ", paired with an input that provides further context",
      ". Write a response that appropriately completes the request.\n\n### Instruction:\n",
      text_of(object["instruction"]), input.empty() ? "" : "\n\n### Input:\n", input, "\n\n### Response:");
  Example example{.prompt = prompt, .answer = text_of(object["output"])};
  example.kind = Example::Kind::instruction;
  return example;
}

/// Returns the example of a line whose columns the user has named.
Example named_example(const Field& object, const Columns& columns) {
  for (const std::string& column : {columns.prompt, columns.answer})
    if (!column.empty() && !object.has(column))
      object.refuse("has no column \"", shortened(column), "\" of ", option_name("columns"), " = ",
                    shortened(columns.text()), ": it has ", keys_of(object));
  const Field answer = object[columns.answer];
  if (columns.prompt.empty() && answer.json().is_array()) {
    refuse_contents(object, {"tools", "functions"});
    return conversation_of(answer);
  }
  if (columns.prompt.empty()) return {.prompt = "", .answer = text_of(answer)};
  return {.prompt = object[columns.prompt].text(), .answer = text_of(answer)};
}

/// Returns the example of a line by its keys.
Example known_example(const Field& object) {
  const bool has_prompt = object.has("prompt"), has_answer = object.has("answer");
  const bool is_conversation = object.has("messages") || object.has("conversations");
  const bool is_instruction = object.has("instruction") && object.has("output");
  const bool is_pair = has_prompt && has_answer;
  if (is_conversation + is_instruction + is_pair > 1)
    object.refuse("has ", keys_of(object), ", which are examples of several kinds: choose with ",
                  option_name("columns"));
  if (is_conversation) {
    refuse_contents(object, {"tools", "functions"});
    return conversation_of(object[object.has("messages") ? "messages" : "conversations"]);
  }
  if (is_instruction) return instruction_of(object);
  const bool is_text = object.has("text");
  if (!is_text && !is_pair) object.refuse("has ", keys_of(object), ": an example has ", accepted_keys());
  if (!is_text) return {.prompt = object["prompt"].text(), .answer = text_of(object["answer"])};
  require(!has_prompt && !has_answer, object.name(),
          ": \"text\" cannot be combined with \"prompt\" or \"answer\"; a document has \"text\" alone");
  return {.prompt = "", .answer = text_of(object["text"])};
}

Example example_of(std::string_view line, const std::string& place, const Columns& columns) {
  decode_utf8(line, place);  // also refuses a NUL
  const Field object(line, place, most_line_bytes);
  object.require_is(object.json().is_object(), "an object with ",
                    columns.are_named() ? columns.text() : accepted_keys());
  return columns.are_named() ? named_example(object, columns) : known_example(object);
}

}  // namespace

const char* name_of(ChatMessage::Role role) { return known_roles[static_cast<size_t>(role)].first; }

Columns columns_of(const std::string& value) {
  const size_t colon = value.find(':');
  const auto part = [&](size_t begin, size_t end) { return trimmed(value.substr(begin, end - begin)); };
  const bool is_pair = colon != std::string::npos;
  const Columns columns{.prompt = is_pair ? part(0, colon) : "",
                        .answer = part(is_pair ? colon + 1 : 0, value.size())};
  require(!columns.answer.empty() && columns.prompt.empty() != is_pair &&
              columns.answer.find(':') == std::string::npos,
          option_name("columns"), " = ", value,
          ": write PROMPT:ANSWER, the names of two columns, or the name of one");
  return columns;
}

std::vector<Example> read_examples(std::string_view lines, const std::string& source, const Columns& columns,
                                   int64_t first_line) {
  std::vector<Example> examples;
  std::istringstream stream{std::string(lines)};
  int64_t number = first_line;
  for (std::string line; std::getline(stream, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    examples.push_back(example_of(line, concat(source, ":", number), columns));
    examples.back().line = number;
  }
  return examples;
}

}  // namespace lockstep
