// SPDX-License-Identifier: Apache-2.0
#include "lockstep/config/key.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/json/utf8.h"

namespace lockstep {
namespace {

/// Returns the shortest text that reads back as the same number.
std::string number_text(auto value) {
  std::array<char, 32> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string range_text(const NumberRange& range) {
  const std::string low = concat(range.low_open ? "above " : "at least ", number_text(range.low));
  const std::string high = concat(range.high_open ? "below " : "at most ", number_text(range.high));
  if (std::isinf(range.high)) return low;
  if (std::isinf(range.low)) return high;
  return low + " and " + high;
}

bool holds(const NumberRange& range, double value) {
  return (range.low_open ? value > range.low : value >= range.low) &&
         (range.high_open ? value < range.high : value <= range.high);
}

template <class Number>
Number read_number(const NumberRange& range, const std::string& text, const std::string& what) {
  constexpr bool is_whole = std::is_integral_v<Number>;
  std::conditional_t<is_whole, int64_t, double> number{};
  const std::string_view digits = without_plus(text);
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  require(error != std::errc::result_out_of_range, what, shortened(text), " is out of range");
  require(error == std::errc() && stop == end, what, "expected ", is_whole ? "an integer" : "a number",
          ", got '", shortened(text), "'");
  const auto value = static_cast<double>(number);
  require(std::isfinite(value), what, number_text(number), " is not a finite number");
  require(holds(range, value), what, "must be ", range_text(range), ", not ", number_text(number));
  return static_cast<Number>(number);
}

bool read_truth(const std::string& text, const std::string& what) {
  const auto is_any = [&text](auto... words) { return ((::strcasecmp(text.c_str(), words) == 0) || ...); };
  const bool is_true = is_any("true", "yes", "on", "1");
  require(is_true || is_any("false", "no", "off", "0"), what, "expected true or false, got '",
          shortened(text), "'");
  return is_true;
}

/// Returns the K of `text` if `word` is "name=K" and `text` is "name=" and an integer from 1.
std::optional<int64_t> number_in_word(const std::string& word, const std::string& text) {
  const std::string name = word.substr(0, word.size() - 1);
  if (!word.ends_with("=K") || !text.starts_with(name)) return std::nullopt;
  const auto number = number_in<int64_t>(std::string_view(text).substr(name.size()));
  return number && *number >= 1 ? number : std::nullopt;
}

std::string after_dot(const std::string& name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

template <class Number>
ValueFormat<Number> number_format(const NumberRange& range) {
  return {.type = std::is_integral_v<Number> ? "integer" : "number",
          .read = [range](const std::string& text,
                          const std::string& what) { return read_number<Number>(range, text, what); },
          .write = [](const Number& value) { return number_text(value); }};
}
template ValueFormat<int> number_format(const NumberRange&);
template ValueFormat<int64_t> number_format(const NumberRange&);
template ValueFormat<double> number_format(const NumberRange&);

ValueFormat<bool> truth_format() {
  return {.type = "true or false", .read = read_truth, .write = [](const bool& value) {
            return std::string(value ? "true" : "false");
          }};
}

void require_printable(const std::string& text, const std::string& what) {
  const bool is_printable =
      std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c != '"' && c != 0x7f; });
  require(is_printable, what, "the value '", shortened(text),
          "' contains a double quote or an invisible character");
  // Snapshots store all values in JSON.
  require(is_utf8(text), what, "the value '", shortened(text), "' is not UTF-8; rename the file or folder");
}

ValueFormat<std::string> text_format(bool is_path) {
  return {.type = "text",
          .read =
              [is_path](const std::string& text, const std::string& what) {
                std::string value = is_path ? expanded_path(text, what) : text;
                require_printable(value, what);
                return value;
              },
          .write = [](const std::string& value) { return value; }};
}

std::pair<size_t, int64_t> find_word(const std::vector<std::string>& words, const std::string& text,
                                     const std::string& what) {
  require_printable(text, what);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == text && !words[i].ends_with("=K")) return {i, 0};
    if (const auto number = number_in_word(words[i], text)) return {i, *number};
  }
  throw UserError(concat(what, "expected one of ", joined(words), ", got '", shortened(text), "'"));
}

const Key* KeyTable::known(const std::string& name) const {
  const auto found = std::ranges::find(keys_, name, &Key::name);
  return found == keys_.end() ? nullptr : &*found;
}

const Key& KeyTable::find(const std::string& name, const std::string& origin) const {
  if (const Key* key = known(name)) return *key;
  throw UserError(concat(origin, ": unknown key ", shortened(name), suggestion(name)));
}

std::string KeyTable::suggestion(const std::string& name) const {
  const std::string last = after_dot(name);
  std::optional<size_t> least;
  std::string nearest;
  for (const Key& key : keys_) {
    if (key.name == name) return concat(" (write ", name, "=VALUE)");
    const std::optional<size_t> slips = slips_between(last, after_dot(key.name));
    // Two sections may have a key of this name: the section that was written wins.
    const bool is_in_section = name.starts_with(key.name.substr(0, key.name.find('.') + 1));
    if (!slips || (least && (*slips > *least || (*slips == *least && !is_in_section)))) continue;
    least = slips;
    nearest = key.name;
  }
  if (least != 0) {
    for (const auto& [advice, names] : advice_)
      if (std::ranges::count(names, last) > 0) nearest = advice;
    for (const Key& key : keys_)
      if (std::ranges::count(key.elsewhere, last) > 0) nearest = key.name;
  }
  return nearest.empty() ? " (--help lists all keys)" : concat(" (did you mean ", nearest, "?)");
}

void KeyTable::suggest(const std::string& advice, std::vector<std::string> names) {
  advice_.emplace_back(advice, std::move(names));
}

}  // namespace lockstep
