// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/chat_template.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/unicode/character_classes.h"

namespace lockstep {
namespace {

/// The parts of a message in a template. Parts in backticks are special tokens:
/// `open` role `close` gap content `end` after
struct Parts {
  const char* name;
  const char* begin;  ///< before the first message; null: nothing
  const char* open;
  const char* close;  ///< null: none
  const char* gap;
  const char* end;
  const char* after;
};

constexpr Parts llama3{
    "llama3", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "\n\n", "<|eot_id|>", ""};
constexpr Parts chatml{"chatml", nullptr, "<|im_start|>", nullptr, "\n", "<|im_end|>", "\n"};

constexpr const char* dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
constexpr const char* empty_thought = "<think>\n\n</think>\n\n";

const Parts& parts_of(const ChatTemplate& chat) {
  return chat.form == ChatTemplate::Form::llama3 ? llama3 : chatml;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool has_any(std::string_view text, std::initializer_list<const char*> parts) {
  return std::ranges::any_of(parts, [&](const char* part) { return has(text, part); });
}

/// Returns a text of Jinja without comments, and with each line end in a literal as a line end.
std::string legible(std::string text) {
  for (size_t at = text.find("{#"); at != std::string::npos; at = text.find("{#", at))
    text.erase(at, std::min(text.find("#}", at), text.size() - 2) + 2 - at);
  for (size_t at = text.find("\\n"); at != std::string::npos; at = text.find("\\n", at))
    text.replace(at, 2, "\n");
  return text;
}

/// Returns the text that a ChatML template writes as a system message of its own. Empty if there is none.
/// Returns nothing if it writes several, or one that is put together.
std::optional<std::string> own_system_of(const std::string& jinja) {
  constexpr std::string_view header = "<|im_start|>system\n";
  std::string system;
  for (size_t at = jinja.find(header); at != std::string::npos; at = jinja.find(header, at)) {
    at += header.size();
    const size_t end = jinja.find_first_of("'\"<\\{}", at);
    if (end == at) continue;  // the literal ends: the message of the user follows
    const std::string found = jinja.substr(at, end - at);
    const bool is_whole =
        end != std::string::npos && std::string_view(jinja).substr(end).starts_with("<|im_end|>");
    if (!is_whole || (!system.empty() && system != found)) return {};
    system = found;
  }
  return system;
}

/// Returns whether a template with dates gives a conversation without a system message another text.
bool has_default_system(const std::string& jinja) {
  constexpr std::string_view name = "system_message";
  for (size_t at = jinja.find(name); at != std::string::npos; at = jinja.find(name, at)) {
    at += name.size();
    const std::string_view value =
        std::string_view(jinja).substr(std::min(jinja.find_first_not_of(" =", at), jinja.size()));
    const bool is_literal = value.starts_with('\'') || value.starts_with('"');
    if (is_literal && !value.starts_with("''") && !value.starts_with("\"\"")) return true;
  }
  return false;
}

/// Returns whether a template has other special tokens than these, or something else that changes a turn.
bool has_other_parts(std::string_view jinja, std::initializer_list<std::string_view> tokens) {
  for (size_t at = jinja.find("<|"); at != std::string::npos; at = jinja.find("<|", at + 1)) {
    const std::string_view token =
        jinja.substr(at, std::min(jinja.find("|>", at), jinja.size() - 2) + 2 - at);
    if (std::ranges::find(tokens, token) == tokens.end()) return true;
  }
  return has_any(jinja, {"eos_token", "upper", "macro", "add_generation_prompt) or"});
}

/// Returns the literals in the expressions of a template one after the other. Names of fields are left out.
std::string literals_of(std::string_view jinja) {
  std::string literals;
  for (size_t at = jinja.find("{{"); at != std::string::npos; at = jinja.find("{{", at))
    for (; at < jinja.size() && !jinja.substr(at).starts_with("}}"); ++at) {
      const char quote = jinja[at];
      if (quote != '\'' && quote != '"') continue;
      const size_t begin = at + 1;
      do at = jinja.find(quote, at + 1);
      while (at != std::string::npos && jinja[at - 1] == '\\');
      if (at == std::string::npos) return literals;
      if (jinja[begin - 2] != '[') literals += jinja.substr(begin, at - begin);
    }
  return literals;
}

/// Returns whether each turn that a ChatML template writes has a line end after its role and after its end.
bool has_line_ends(const std::string& jinja) {
  const std::string literals = literals_of(jinja);
  const std::string_view open = chatml.open, end = chatml.end;
  bool has_them = has(literals, open) && has(literals, end);
  for (size_t at = literals.find(open); at != std::string::npos;) {
    const size_t next = literals.find(open, at + 1);
    const std::string_view turn =
        std::string_view(literals).substr(at + open.size(), next - at - open.size());
    const size_t gap = std::min(turn.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), turn.size());
    const size_t last = turn.rfind(end);
    has_them = has_them && turn.substr(gap).starts_with(chatml.gap) &&
               (last == std::string::npos || turn.substr(last + end.size()).starts_with(chatml.after));
    at = next;
  }
  return has_them;
}

std::optional<ChatTemplate> llama3_of(const std::string& jinja) {
  ChatTemplate chat{.form = ChatTemplate::Form::llama3};
  chat.adds_dates = has(jinja, "Cutting Knowledge Date: December 2023") && has(jinja, "26 Jul 2024");
  const bool has_other_system = has(jinja, "Cutting Knowledge Date") != chat.adds_dates ||
                                has(jinja, "You are") ||
                                (chat.adds_dates ? has_default_system(jinja) : has(jinja, "system"));
  const bool has_tokens =
      has_any(jinja, {"bos_token", llama3.begin}) && has(jinja, llama3.close) && has(jinja, llama3.end) &&
      !has_other_parts(jinja,
                       {llama3.begin, llama3.open, llama3.close, llama3.end, "<|eom_id|>", "<|python_tag|>"});
  const bool is_known = has_tokens && has(jinja, "trim") && !has_other_system && !has(jinja, "<think>");
  return is_known ? std::optional(chat) : std::nullopt;
}

std::optional<ChatTemplate> chatml_of(const std::string& jinja) {
  ChatTemplate chat{.form = ChatTemplate::Form::chatml};
  chat.adds_thoughts =
      has(jinja, "> ns.last_query_index") && has(jinja, "<think>\n") && has(jinja, "lstrip('\n')");
  const std::optional<std::string> system = own_system_of(jinja);
  chat.system = system.value_or("");
  const bool changes_contents =
      has_other_parts(jinja, {chatml.open, chatml.end}) || !has_line_ends(jinja) ||
      has_any(jinja, {"trim", "bos_token", "strftime_now", "[INST]", "replace(", "if not loop.last"}) ||
      (!chat.adds_thoughts && has_any(jinja, {"<think>", "</think>", "strip(", "split("}));
  // A default that is shown only with tools would be added to all.
  const bool asks_for_system =
      chat.system.empty() || has_any(jinja, {"== 'system'", "!= 'system'", "== \"system\"", "!= \"system\""});
  return system && !changes_contents && asks_for_system ? std::optional(chat) : std::nullopt;
}

/// Returns a text without the white space at its ends that Python's str.strip() removes.
std::string stripped(std::string_view text) {
  const auto is_space = [](const char* at) {
    return CharacterClasses::table().at(at).kind == CharacterClass::white_space ||
           (*at >= 0x1C && *at <= 0x1F);
  };
  size_t begin = 0;
  while (begin < text.size() && is_space(text.data() + begin))
    begin += CharacterClasses::table().at(text.data() + begin).bytes;
  size_t end = text.size();
  while (end > begin) {
    size_t last = end - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!is_space(text.data() + last)) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

/// Returns the messages as the template writes them, with those that it adds.
std::vector<ChatMessage> written_messages(const ChatTemplate& chat, std::vector<ChatMessage> messages) {
  using Role = ChatMessage::Role;
  const bool has_system = messages.front().role == Role::system;
  if (chat.form == ChatTemplate::Form::llama3)
    for (ChatMessage& message : messages) message.content = stripped(message.content);
  if (!has_system && (!chat.system.empty() || chat.adds_dates))
    messages.insert(messages.begin(), {.role = Role::system, .content = chat.system});
  if (chat.adds_dates) messages.front().content.insert(0, dates);
  if (chat.adds_thoughts && messages.size() > 1 && messages.back().role == Role::assistant &&
      std::ranges::count(messages, Role::user, &ChatMessage::role) > 0) {
    std::string& last = messages.back().content;
    last = empty_thought + last.substr(std::min(last.find_first_not_of('\n'), last.size()));
  }
  return messages;
}

/// Throws UserError for a message that the template of Qwen 3 writes in another way.
void refuse_thoughts(const Example& example, const std::string& place) {
  for (const ChatMessage& message : example.messages) {
    require(message.role != ChatMessage::Role::assistant || !has(message.content, "</think>"), place,
            " has \"</think>\" in a message of the assistant, which the template of Qwen 3 takes apart; "
            "this is not supported: set ",
            option_name("chat_template"), " = chatml to keep messages as they are");
    require(message.role != ChatMessage::Role::user || !message.content.starts_with("<tool_response>"), place,
            " has the response of a tool, which is not supported in a conversation");
  }
}

}  // namespace

std::string ChatTemplate::text() const {
  return concat("the template ", parts_of(*this).name,
                system.empty() ? "" : concat(" with the system message \"", system, "\""),
                adds_dates ? " with the dates of Llama 3.1" : "",
                adds_thoughts ? " with Qwen 3's empty thought" : "");
}

std::optional<ChatTemplate> chat_template_of(const std::string& jinja) {
  const std::string text = legible(jinja);
  if (has(text, llama3.open)) return llama3_of(text);
  return has(text, chatml.open) ? chatml_of(text) : std::nullopt;
}

void require_tokens_of(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const Parts& parts = parts_of(chat);
  for (const char* token : {parts.begin, parts.open, parts.close, parts.end})
    require(token == nullptr || tokenizer.special_token(token), "the tokenizer has no special token ", token,
            ", which conversations need in ", chat.text());
}

void encode_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat, const Example& example,
                         const std::string& source, EncodedExamples& all) {
  const std::string place = concat(source, ":", example.line);
  const Parts& parts = parts_of(chat);
  const auto add = [&](const char* token) {
    if (token) all.ids.push_back(tokenizer.special_token(token).value());
  };
  // The text between special tokens is encoded as a whole. Returns the ids that end within its beginning.
  const auto add_text = [&](const std::string& text, size_t beginning) {
    const std::vector<int32_t> ids = tokenizer.encode_content(text, place);
    all.ids.insert(all.ids.end(), ids.begin(), ids.end());
    int64_t count = 0;
    size_t bytes = 0;
    for (; count < std::ssize(ids); ++count)
      if ((bytes += tokenizer.decode({&ids[static_cast<size_t>(count)], 1}).size()) > beginning) break;
    return std::ssize(all.ids) - std::ssize(ids) + count;
  };
  if (chat.adds_thoughts) refuse_thoughts(example, place);
  add(parts.begin);
  for (const ChatMessage& message : written_messages(chat, example.messages)) {
    add(parts.open);
    std::string head = name_of(message.role);
    if (parts.close) add_text(std::exchange(head, ""), 0);
    add(parts.close);
    head += parts.gap;
    const int64_t first = add_text(head + message.content, head.size());
    add(parts.end);
    // The marks of an answer that more of the conversation follows: EncodedExamples.
    if (message.role == ChatMessage::Role::assistant)
      all.marks.insert(all.marks.end(), {first, ~std::ssize(all.ids)});
    add_text(parts.after, 0);
  }
  all.marks.insert(all.marks.end(), 2, std::ssize(all.ids));
}

}  // namespace lockstep
