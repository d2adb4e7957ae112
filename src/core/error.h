// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {

namespace detail {

template <class T>
constexpr bool is_character_code =
    std::is_integral_v<T> && !std::is_same_v<T, char> && !std::is_same_v<T, bool> &&
    (sizeof(T) == 1 || std::is_same_v<T, wchar_t> || std::is_same_v<T, char16_t> ||
     std::is_same_v<T, char32_t>);

void append_number(std::string& text, double number);
/// Appends the text that `print` writes for `value`.
void append_printed(std::string& text, void (*print)(std::ostream&, const void*), const void* value);

/// Appends numbers and texts without <sstream>, which takes longer to compile than the rest of this file.
template <class T>
void append(std::string& text, const T& value) {
  static_assert(!is_character_code<T>,
                "a stream prints this type as a character, if at all: convert it to char or int");
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    text += std::string_view(value);
  else if constexpr (std::is_same_v<T, char>)
    text += value;
  else if constexpr (std::is_floating_point_v<T>)
    append_number(text, static_cast<double>(value));
  else if constexpr (std::is_integral_v<T>)
    text += std::to_string(value);
  else
    append_printed(
        text, [](std::ostream& out, const void* any) { out << *static_cast<const T*>(any); }, &value);
}

/// The operation that this thread runs, which tensor/operation_scope.h sets. Messages of errors begin with
/// it.
struct RunningOperation {
  const char *role = "", *name = nullptr;  ///< null: none
};
RunningOperation& running_operation();
std::string with_operation(const std::string& message);

}  // namespace detail

/// Joins the arguments, each as a new stream in the "C" locale prints it.
template <class... Args>
std::string concat(const Args&... args) {
  std::string text;
  (detail::append(text, args), ...);
  return text;
}

/// A failure. what() is the message for the user; where() is the source location that detected it.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : std::runtime_error(detail::with_operation(message)), file_(file), line_(line) {}

  std::string where() const { return concat(file_, ":", line_); }

 private:
  const char* file_;
  int line_;
};

/// An error in the user's input: arguments, configuration, data or a required resume. The program exits with
/// 2 and is never restarted. The message names the key or the file and says what to do.
class UserError : public Error {
 public:
  // Written out, because nvcc 13.0 cannot compile an inherited constructor with such defaults.
  UserError(const std::string& message, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : Error(message, file, line) {}
};

// Exit codes that the caller of a program can act on. 0 is done; any other code is a failure.
constexpr int exit_usage = 2;          ///< bad input: a restart does not help
constexpr int exit_stopped = 75;       ///< stopped on request after a snapshot: start it again to resume
constexpr int exit_interrupted = 130;  ///< ended at once by a second Ctrl-C

/// A condition and the source location where it was written.
struct Condition {
  Condition(bool condition, const char* in_file = __builtin_FILE(), int at_line = __builtin_LINE())
      : holds(condition), file(in_file), line(at_line) {}

  bool holds;
  const char* file;
  int line;
};

/// Throws Error with the joined message unless the condition holds: for mistakes of the calling code.
template <class... Args>
void expect(Condition condition, const Args&... message) {
  if (!condition.holds) [[unlikely]]
    throw Error(concat(message...), condition.file, condition.line);
}

/// Throws UserError with the joined message unless the condition holds: for mistakes in the user's input.
template <class... Args>
void require(Condition condition, const Args&... message) {
  if (!condition.holds) [[unlikely]]
    throw UserError(concat(message...), condition.file, condition.line);
}

}  // namespace lockstep
