// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string with_zeros(const std::string& digits, size_t width) {
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

/// Returns the text that std::to_chars writes. Any double fits in fixed form with 60 decimals.
template <class Number, class... Form>
std::string written(Number number, Form... form) {
  std::array<char, 400> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number, form...).ptr};
}

/// Returns the fewest edits from a to b.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& fewest = cost[i][j];
      fewest = i + j;
      if (i == 0 || j == 0) continue;
      const size_t differs = a[i - 1] == b[j - 1] ? 0 : 1;
      fewest = std::min({cost[i - 1][j - 1] + differs, cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) fewest = std::min(fewest, cost[i - 2][j - 2] + 1);
    }
  return cost[a.size()][b.size()];
}

Wording& words() {
  static Wording all;
  return all;
}

}  // namespace

std::string lower_case(std::string text) {
  for (char& c : text)
    if ('A' <= c && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string upper_case(std::string text) {
  for (char& c : text)
    if ('a' <= c && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

std::string hexadecimal(uint64_t number, size_t digits) { return with_zeros(written(number, 16), digits); }

std::string zero_padded(int64_t number, size_t digits) { return with_zeros(written(number), digits); }

std::string fixed_text(double number, int decimals) {
  return written(number, std::chars_format::fixed, decimals);
}

std::string exact_text(double number) {
  // For a subnormal number, libraries do not agree on the first digit. The smallest normal number makes it 1.
  const bool is_subnormal = std::fpclassify(number) == FP_SUBNORMAL;
  std::string digits = written(std::abs(number) + (is_subnormal ? 0x1p-1022 : 0.0), std::chars_format::hex);
  if (is_subnormal) digits[0] = '0';
  return concat(std::signbit(number) ? "-" : "", std::isfinite(number) ? "0x" : "", digits);
}

std::string shell_quoted(const std::string& text) {
  constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + quoted + "'";
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (text[most] & 0xC0) == 0x80) --most;
  return std::string(text.substr(0, most)) + "...";
}

std::string left_aligned(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string bytes_text(double bytes) {
  static constexpr std::array units = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; bytes >= 1023.5 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return fixed_text(bytes, unit > 0 && bytes < 9.95 ? 1 : 0) + " " + units[unit];
}

std::optional<size_t> slips_between(const std::string& name, const std::string& known) {
  const size_t most = name.size() < 4 ? 0 : name.size() < 8 ? 1 : 2;
  if (name.size() > known.size() + most) return std::nullopt;  // such a name may be as long as a file
  const size_t slips = edit_distance(name, known);
  return slips <= most ? std::optional(slips) : std::nullopt;
}

std::string wrapped_lines(const std::string& text, size_t columns) {
  std::istringstream stream(text);
  std::string all;
  for (std::string line; std::getline(stream, line);) {
    line.erase(line.find_last_not_of(' ') + 1);
    const size_t first = std::min(line.find_first_not_of(' '), line.size());
    const size_t gap = line.find("  ", first);
    const size_t column = gap == std::string::npos ? first : line.find_first_not_of(' ', gap);
    const size_t indent = column < columns / 2 ? column : first + 4;
    while (line.size() > columns) {
      size_t end = line.rfind(' ', columns);
      if (end == std::string::npos || end <= indent) end = line.find(' ', std::max(columns, indent));
      if (end == std::string::npos) break;
      all += line.substr(0, line.find_last_not_of(' ', end) + 1) + "\n";
      line = std::string(indent, ' ') + line.substr(line.find_first_not_of(' ', end));
    }
    all += line + "\n";
  }
  return all;
}

void set_wording(Wording wording) { words() = std::move(wording); }

std::string advice_about(const std::string& problem, const std::string& otherwise) {
  const auto found = words().find(problem);
  return found == words().end() ? otherwise : found->second;
}

}  // namespace lockstep
