// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The secret that lets a process join a run, and so start programs on its hosts. Never printed or sent.
class Secret {
 public:
  /// Returns 32 bytes from the system's generator, as hexadecimal digits.
  static Secret random();
  /// Reads a file without its line end. Throws UserError if others may read it or the text is too short.
  static Secret from_file(const std::string& path);
  /// Takes the secret out of the environment, which /proc shows. Throws UserError with `advice` if not set.
  static Secret from_environment(const char* variable, const std::string& advice);
  /// Makes a secret from a text; `where` names its source. Throws UserError if it has fewer than 16 bytes.
  static Secret from_text(const std::string& text, const std::string& where = "the secret");

  const std::string& bytes() const { return bytes_; }

 private:
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}

  std::string bytes_;
};

/// Returns bytes that cannot be guessed. Throws Error if the system has none.
std::string random_bytes(size_t count);

/// Returns the HMAC-SHA256 (RFC 2104) of a text, 32 bytes that only the key can make. Throws Error.
std::string authentication_code(std::string_view key, std::string_view text);

/// Compares in a time that does not depend on where the first difference is.
bool equal_in_constant_time(std::string_view left, std::string_view right);

}  // namespace lockstep
