// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"

#include <array>
#include <charconv>
#include <locale>
#include <sstream>

namespace lockstep::detail {

RunningOperation& running_operation() {
  thread_local RunningOperation running;
  return running;
}

std::string with_operation(const std::string& message) {
  const auto [role, name] = running_operation();
  if (name == nullptr || message.starts_with(concat(name, ":"))) return message;
  return concat(role, name, ": ", message);
}

void append_number(std::string& text, double number) {
  constexpr int digits_of_a_stream = 6;
  std::array<char, 32> digits;
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), number,
                                     std::chars_format::general, digits_of_a_stream);
  text.append(digits.data(), written.ptr);
}

void append_printed(std::string& text, void (*print)(std::ostream&, const void*), const void* value) {
  std::ostringstream stream;
  // Texts become names of files and keys, which must not depend on the program's locale.
  stream.imbue(std::locale::classic());
  print(stream, value);
  text += stream.str();
}

}  // namespace lockstep::detail
