// SPDX-License-Identifier: Apache-2.0
#include "data/file_kind.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "core/wording.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

/// The keys of examples here and in the files of other programs, which the reader of examples refuses by
/// name.
constexpr std::array keys_of_examples = {"prompt",   "answer",        "text",        "completion", "response",
                                         "messages", "conversations", "instruction", "question"};

constexpr int64_t most_head_bytes = int64_t{1} << 20;

/// Returns whether a path or an address without query and fragment has an ending of JSON.
bool has_ending_of_json(std::string name) {
  if (name.find("://") != std::string::npos) name = name.substr(0, name.find_first_of("?#"));
  const std::string ending = lower_case(std::filesystem::path(name).extension().string());
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
}

/// Returns whether what follows a value in its line may be a mistake in JSON, and is not prose.
bool may_be_json(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos ||
         std::string_view(",{[]}").find(text[first]) != std::string_view::npos;
}

/// Returns the first bytes of a file without a byte order mark and without blanks at the beginning.
std::string beginning_of(const Bytes& bytes, int64_t most) {
  std::string head(static_cast<size_t>(std::min(most, bytes.size())), '\0');
  bytes.read(0, std::as_writable_bytes(std::span(head)));
  head = without_byte_order_mark(head);
  return head.erase(0, std::min(head.find_first_not_of(" \t\r\n"), head.size()));
}

/// The JSON at the beginning of a text that may be cut or followed by other text.
struct FirstValue {
  bool is_list = false;
  bool has_object = false;  ///< it is an object with keys or a list of them
  bool has_known_key = false;
};

FirstValue first_value(std::string_view text) {
  FirstValue first;
  bool is_after_known_key = false;
  const auto watch = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    first.has_known_key |= is_after_known_key;  // what follows is its value
    is_after_known_key = false;
    if (depth == 0 && event == Json::parse_event_t::array_start) first.is_list = true;
    if (event == Json::parse_event_t::key && depth == (first.is_list ? 2 : 1)) {
      first.has_object = true;
      is_after_known_key = std::ranges::count(keys_of_examples, parsed.get<std::string>()) > 0;
    }
    return depth < 3;
  };
  std::ignore = Json::parse(text, watch, false);
  return first;
}

/// The end of the JSON value at the beginning of a text.
struct ValueEnd {
  std::optional<size_t> place;  ///< nothing if the value is damaged or cut
  bool is_cut = false;          ///< valid, but longer than the text
};

ValueEnd end_of_value(const std::string& text) {
  std::istringstream stream(text);
  Json value;
  try {
    stream >> value;
    return {.place = static_cast<size_t>(stream.tellg())};
  } catch (const Json::parse_error& problem) {
    return {.place = {}, .is_cut = problem.byte > text.size()};
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace

bool has_examples(const std::string& name, const Bytes& bytes) {
  const bool is_named = has_ending_of_json(name);
  std::string head = beginning_of(bytes, int64_t{1} << 12);
  if (!head.starts_with('{') && !head.starts_with('[')) {
    require(!is_named || head.empty(), option_name("dataset"), ": ", name,
            " has the name of examples, but does not begin with a JSON object; a text needs another ending");
    return is_named;
  }
  head = beginning_of(bytes, most_head_bytes);
  const FirstValue first = first_value(head);
  const ValueEnd end = end_of_value(head);
  const bool goes_on = end.is_cut && bytes.size() > most_head_bytes;  // beyond the head
  const size_t line_end = std::min(head.find('\n'), head.size());
  const size_t value_end = std::min(end.place.value_or(line_end), line_end);
  const std::string_view after = std::string_view(head).substr(value_end, line_end - value_end);
  const bool is_text = !is_named && (!first.has_known_key || !may_be_json(after));
  if (is_text && first.has_object && (end.place || goes_on))
    log_warning(concat(option_name("dataset"), ": ", name,
                       " begins with JSON, and is read as a text; a line of examples ",
                       "is one object with \"prompt\" and \"answer\", or with \"text\""));
  if (is_text || !(first.has_known_key || first.has_object)) return is_named;
  const bool is_spread = end.place.value_or(goes_on ? head.size() : 0) > line_end;
  require(!first.is_list && !is_spread, option_name("dataset"), ": ", name, " has ",
          first.is_list ? "a JSON list" : "a JSON object of several lines",
          "; each example must be one object on a line of its own, as jq -c '", first.is_list ? ".[]" : ".",
          "' writes it");
  return true;
}

}  // namespace lockstep
