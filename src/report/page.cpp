// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/page.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/json/utf8.h"
#include "lockstep/report/style.h"

namespace lockstep {
namespace {

constexpr const char* replacement = "\xEF\xBF\xBD";  // U+FFFD

/// Returns whether XML 1.0 has this character.
bool is_in_xml(char32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
  return code != 0xFFFE && code != 0xFFFF;
}

std::string escaped_character(std::string_view bytes, char32_t code) {
  switch (code) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      return is_in_xml(code) ? std::string(bytes) : replacement;
  }
}

}  // namespace

std::string escaped(std::string_view text, size_t most_bytes) {
  std::string out;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const std::string next = character.is_valid()
                                 ? escaped_character(text.substr(0, character.bytes), character.code_point)
                                 : replacement;
    if (out.size() + next.size() > most_bytes) return out + "\xE2\x80\xA6";  // an ellipsis
    out += next;
    text.remove_prefix(std::min(character.bytes, text.size()));
  }
  return out;
}

std::string tag(const std::string& opening, const std::string& content) {
  return concat("<", opening, ">", content, "</", opening.substr(0, opening.find(' ')), ">");
}

std::string page(const std::string& title, const std::string& body) {
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n",
      tag("title", escaped(title)), "\n<style>\n", page_style, "</style>\n</head>\n<body>\n<main>\n", body,
      "</main>\n<script>\n//<![CDATA[\n", page_script, "//]]>\n</script>\n</body>\n</html>\n");
}

std::string HtmlTable::html() const {
  std::string lines = "<thead><tr>";
  for (size_t i = 0; i < head.size(); ++i)
    lines += tag("th scope=\"col\"", (i < samples.size() ? samples[i] : "") + head[i]);
  lines += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows) {
    const bool is_group = row.size() == 1;
    lines += is_group ? "<tr class=\"group\">" : "<tr>";
    const std::string name = concat("th colspan=\"", is_group ? head.size() : 1, "\" scope=\"row\"");
    for (size_t i = 0; i < row.size(); ++i)
      lines += tag(i == 0 ? name : is_stacked ? concat("td data-head=\"", head[i], "\"") : "td", row[i]);
    lines += "</tr>\n";
  }
  const std::string table =
      concat("table class=\"", has_numbers ? "numbers" : "texts", is_stacked ? " stacked" : "", "\"");
  return tag("div class=\"wide\" tabindex=\"0\"", tag(table, lines + "</tbody>")) + "\n";
}

/// Returns the number without zeros at the end of its decimals.
static std::string without_zeros(std::string number) {
  if (number.find('.') == std::string::npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.')) number.pop_back();
  return number;
}

std::string whole_text(int64_t number) {
  std::string digits = std::to_string(std::abs(number));
  for (auto at = std::ssize(digits) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), "\xE2\x80\xAF");  // U+202F
  return (number < 0 ? "\xE2\x88\x92" : "") + digits;
}

std::string short_number(double number) {
  if (!std::isfinite(number)) return std::isnan(number) ? "NaN" : "infinite";
  const double size = std::abs(number);
  if (size >= 1000 && size < 1e15) return whole_text(std::llround(number));
  if (size >= 1000 || (size > 0 && size < 1e-4)) return concat(number);
  int decimals = size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
  if (size > 0 && size < 0.1) decimals = size >= 0.01 ? 5 : size >= 0.001 ? 6 : 7;
  return without_zeros(fixed_text(number, decimals));
}

std::string duration_text(double seconds) {
  if (seconds < 1) return concat(without_zeros(fixed_text(seconds * 1000, seconds < 0.01 ? 2 : 0)), " ms");
  if (seconds < 60) return concat(without_zeros(fixed_text(seconds, 1)), " s");
  const int64_t whole = std::llround(seconds);
  const auto two = [](int64_t large, const char* of_large, int64_t small, const char* of_small) {
    return concat(large, " ", of_large, small > 0 ? concat(" ", small, " ", of_small) : "");
  };
  if (whole < 3600) return two(whole / 60, "min", whole % 60, "s");
  if (whole < 86400) return two(whole / 3600, "h", whole % 3600 / 60, "min");
  return two(whole / 86400, "d", whole % 86400 / 3600, "h");
}

std::string percent_text(double share) { return fixed_text(100 * share, 2) + "%"; }

std::string time_text(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  const auto two = [](int number) { return zero_padded(number, 2); };
  return concat(zero_padded(parts.tm_year + 1900, 4), "-", two(parts.tm_mon + 1), "-", two(parts.tm_mday),
                " ", two(parts.tm_hour), ":", two(parts.tm_min), ":", two(parts.tm_sec));
}

}  // namespace lockstep
