// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace lockstep {

/// Joins the arguments as a stream would print them.
template <class... Args>
std::string concat(const Args&... args) {
  std::ostringstream text;
  (text << ... << args);
  return text.str();
}

/// Something failed. what() is for the user; where() is the source location that noticed it.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : std::runtime_error(message), file_(file), line_(line) {}

  std::string where() const { return concat(file_, ":", line_); }

 private:
  const char* file_;
  int line_;
};

/// The user's input is at fault: arguments, configuration, data, or a required resume. Exit code 2, never
/// restarted. The message names the key or the file and says what to do.
class UserError : public Error {
 public:
  // Spelled out: nvcc 13.0 cannot compile an inherited constructor with such defaults.
  UserError(const std::string& message, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : Error(message, file, line) {}
};

/// A condition that remembers where it was written.
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
