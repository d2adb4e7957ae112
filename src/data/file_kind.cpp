// SPDX-License-Identifier: Apache-2.0
#include "data/file_kind.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "core/text.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

/// The keys of examples here and in the files of other programs, which the reader of examples refuses by
/// name.
constexpr std::array keys_of_examples = {"prompt",   "answer",        "text",        "completion", "response",
                                         "messages", "conversations", "instruction", "question"};

/// Returns whether a path or an address without query and fragment has an ending of JSON.
bool has_ending_of_json(std::string name) {
  if (name.find("://") != std::string::npos) name = name.substr(0, name.find_first_of("?#"));
  const std::string ending = lower_case(std::filesystem::path(name).extension().string());
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
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

/// Returns whether the value that begins in a line does not end there.
bool is_cut(std::string_view line) {
  try {
    std::ignore = Json::parse(line);
    return false;
  } catch (const Json::parse_error& problem) {
    return problem.byte > line.size();
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace

bool has_examples(const std::string& name, const Bytes& bytes) {
  const bool is_named = has_ending_of_json(name);
  std::string head = beginning_of(bytes, int64_t{1} << 12);
  if (!head.starts_with('{') && !head.starts_with('[')) {
    require(!is_named || head.empty(), "data.dataset: ", name,
            " has the name of examples, but does not begin with a JSON object; a text needs another ending");
    return is_named;
  }
  head = beginning_of(bytes, int64_t{1} << 20);
  const FirstValue first = first_value(head);
  if (!first.has_known_key && !(is_named && first.has_object)) return is_named;
  const size_t line_end = head.find('\n');
  const bool goes_on = line_end != std::string::npos && is_cut(std::string_view(head).substr(0, line_end));
  require(!first.is_list && !goes_on, "data.dataset: ", name, " has ",
          first.is_list ? "a JSON list" : "a JSON object of several lines",
          "; each example must be one object on a line of its own, as jq -c '", first.is_list ? ".[]" : ".",
          "' writes it");
  return true;
}

}  // namespace lockstep
