// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include <array>
#include <charconv>
#include <locale>
#include <sstream>

namespace lockstep::detail {
namespace {

/// Appends what std::to_chars writes for these arguments.
template <class... Args>
void append_chars(std::string& text, Args... args) {
  std::array<char, 32> digits;
  const std::to_chars_result written = std::to_chars(digits.data(), digits.data() + digits.size(), args...);
  text.append(digits.data(), written.ptr);
}

}  // namespace

void append_number(std::string& text, long long number) { append_chars(text, number); }

void append_number(std::string& text, unsigned long long number) { append_chars(text, number); }

void append_number(std::string& text, double number) {
  constexpr int digits_of_a_stream = 6;
  append_chars(text, number, std::chars_format::general, digits_of_a_stream);
}

void append_printed(std::string& text, void (*print)(std::ostream&, const void*), const void* value) {
  std::ostringstream stream;
  // Texts become names of files and keys, which must not depend on the program's locale.
  stream.imbue(std::locale::classic());
  print(stream, value);
  text += stream.str();
}

}  // namespace lockstep::detail
