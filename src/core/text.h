// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Joins the texts that are not empty.
template <class Texts>
std::string joined(const Texts& texts, std::string_view separator = ", ") {
  std::string all;
  for (const std::string& text : texts) {
    if (!all.empty() && !text.empty()) all += separator;
    all += text;
  }
  return all;
}

/// Returns the text without leading and trailing blanks and line ends.
inline std::string trimmed(std::string_view text) {
  constexpr const char* blanks = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(blanks) + 1 - begin));
}

/// Returns the text with its ASCII letters in lower case. std::tolower() depends on the program's locale.
std::string lower_case(std::string text);
std::string upper_case(std::string text);

/// Returns the number that the whole text represents; nothing if it is none or too large.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// Returns the text without a leading plus, which std::from_chars does not accept.
inline std::string_view without_plus(std::string_view text) {
  return text.size() > 1 && text[0] == '+' && text[1] != '-' ? text.substr(1) : text;
}

/// Returns two lower-case hexadecimal digits for each byte.
inline std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

/// Returns the number as lower-case hexadecimal, padded with zeros to `digits`: (255, 4) gives "00ff".
std::string hexadecimal(uint64_t number, size_t digits);

/// Returns a number that is not negative, padded with zeros to `digits`: zero_padded(7, 3) is "007".
std::string zero_padded(int64_t number, size_t digits);

/// Returns the number with `decimals` digits after the point: fixed_text(2.5, 1) is "2.5".
std::string fixed_text(double number, int decimals);

/// Returns the number without rounding, as printf's %a prints it: exact_text(0.75) is "0x1.8p-1".
std::string exact_text(double number);

/// Returns the text as errors show it: cut after `most` bytes, where a UTF-8 character ends.
std::string shortened(std::string_view text, size_t most = 80);

/// Returns the text, padded with blanks to `width`.
std::string left_aligned(std::string text, size_t width);

/// Returns the text as one word of a POSIX shell: unchanged if it is plain, else between single quotes.
std::string shell_quoted(const std::string& text);

/// Returns a count with its noun: "1 layer", "4 layers".
inline std::string counted(int64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

/// Returns a size with about three digits: "84 bytes", "3.1 KiB", "24 GiB".
std::string bytes_text(double bytes);

/// Returns the edits that turn `name` into `known` if they are few enough for a slip of the keyboard: none
/// for a name of up to three bytes, one for up to seven, two for a longer one. Returns nothing otherwise. An
/// edit inserts, deletes or replaces a byte, or swaps two neighbours (Damerau 1964).
std::optional<size_t> slips_between(const std::string& name, const std::string& known);

/// Returns the text with lines of more than `columns` bytes broken at blanks; a longer word stays whole. A
/// broken line continues below the text after its first gap of two blanks; without a gap, at its own indent.
/// If that column is not in the left half, it continues four columns after its indent.
std::string wrapped_lines(const std::string& text, size_t columns);

/// How a program speaks about the library in messages. A library's user reads the names of options in the
/// code. A program's user reads the keys that set them, and advice about problems.
using Wording = std::map<std::string, std::string>;

/// Sets the wording of this process. Call it before other threads start.
void set_wording(Wording wording);

/// Returns the advice about a problem: `otherwise`, unless the wording has other advice.
std::string advice_about(const std::string& problem, const std::string& otherwise);

/// Returns the name of an option in messages: its own, unless the wording has another.
inline std::string option_name(const std::string& option) { return advice_about(option, option); }

}  // namespace lockstep
