// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// What lets a process join a run: whoever knows it may start programs here. Never printed, never sent.
class Secret {
 public:
  /// 32 bytes from the system's generator, as hexadecimal digits.
  static Secret random();
  /// The file's text without the line's end. UserError if others may read it, or if it is too short.
  static Secret from_file(const std::string& path);
  /// Takes it out of this process's environment, where /proc shows it. UserError with `advice` if it is not
  /// there.
  static Secret from_environment(const char* variable, const std::string& advice);
  /// `where` says where it comes from. UserError if it has less than 16 bytes.
  static Secret from_text(const std::string& text, const std::string& where = "the secret");

  const std::string& bytes() const { return bytes_; }

 private:
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}

  std::string bytes_;
};

/// Bytes that nobody can guess. Throws Error if the system has none.
std::string random_bytes(size_t count);

/// HMAC-SHA256 (RFC 2104): 32 bytes that only who knows the key can make. Throws Error.
std::string authentication_code(std::string_view key, std::string_view text);

/// Compares in a time that does not tell where the first difference is.
bool equal_in_constant_time(std::string_view left, std::string_view right);

}  // namespace lockstep
