// SPDX-License-Identifier: Apache-2.0
#include "config/config_key.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace lockstep {
namespace {

std::string number_text(double value) {
  std::array<char, 32> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string range_text(const Range& range) {
  const std::string low = concat(range.low_open ? "above " : "at least ", number_text(range.low));
  const std::string high = concat(range.high_open ? "below " : "at most ", number_text(range.high));
  if (std::isinf(range.high)) return low;
  if (std::isinf(range.low)) return high;
  return low + " and " + high;
}

bool holds(const Range& range, double value) {
  return (range.low_open ? value > range.low : value >= range.low) &&
         (range.high_open ? value < range.high : value <= range.high);
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// What a key accepts; `what` (place and key) begins every message.
struct Checker {
  const ConfigKey& key;
  std::string what;

  void operator()(const bool* /*any*/) const {}
  void operator()(const int64_t* value) const { number(*value, std::to_string(*value)); }
  void operator()(const double* value) const { number(*value, number_text(*value)); }
  void number(auto value, const std::string& text) const {
    require(std::isfinite(static_cast<double>(value)), what, text, " is not a finite number");
    require(holds(key.range, static_cast<double>(value)), what, "must be ", range_text(key.range), ", not ",
            text);
  }
  void operator()(const std::string* value) const {
    const bool is_printable = std::all_of(value->begin(), value->end(),
                                          [](unsigned char c) { return c >= ' ' && c != '"' && c != 0x7f; });
    require(is_printable, what, "a double quote or an invisible character in '", *value, "'");
    const auto& choices = key.choices;
    const bool is_choice = std::find(choices.begin(), choices.end(), *value) != choices.end();
    require(choices.empty() || is_choice, what, "expected one of ", joined(choices), ", got '", *value, "'");
  }
};

/// Reads one value.
struct Reader {
  const std::string& value;
  std::string what;

  template <class T>
  void number(T& target) const {
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, target);
    require(error != std::errc::result_out_of_range, what, value, " is out of range");
    require(error == std::errc() && stop == end, what, "expected ",
            std::is_same_v<T, int64_t> ? "an integer" : "a number", ", got '", value, "'");
  }
  void operator()(int64_t* target) const { number(*target); }
  void operator()(double* target) const { number(*target); }

  void operator()(bool* target) const {
    const std::string word = lower_case(value);
    const bool is_true = word == "true" || word == "yes" || word == "on" || word == "1";
    const bool is_false = word == "false" || word == "no" || word == "off" || word == "0";
    require(is_true || is_false, what, "expected true or false, got '", value, "'");
    *target = is_true;
  }

  void operator()(std::string* target) const { *target = value; }
};

struct Writer {
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const { return number_text(*value); }
  std::string operator()(const std::string* value) const { return *value; }
};

}  // namespace

std::string ConfigKey::type() const {
  if (!choices.empty()) return joined(choices);
  Config any;
  switch (field(any).index()) {
    case 0:
      return "true or false";
    case 1:
      return "integer";
    case 2:
      return "number";
    default:
      return "text";
  }
}

std::string ConfigKey::text(const Config& config) const {
  Config copy = config;
  // The path would tie whoever reads it to the folder of the run that wrote it.
  std::string& path = copy.snapshot.path;
  if (path == default_snapshot_path(config)) path = "auto";
  if (path.empty()) path = "none";
  return std::visit(Writer{}, field(copy));
}

void ConfigKey::check(const Config& config) const {
  Config copy = config;
  std::visit(Checker{*this, name + ": "}, field(copy));
}

void ConfigKey::assign(Config& config, const std::string& value, const std::string& origin) const {
  const std::string what = concat(origin, ": ", name, ": ");
  std::visit(Reader{value, what}, field(config));
  std::visit(Checker{*this, what}, field(config));
}

}  // namespace lockstep
