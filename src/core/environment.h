// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace lockstep {

// No thread may change the environment while another calls these functions. No signal handler may call them.

/// Returns the value of an environment variable, or nothing if it is not set. A set value may be empty.
inline std::optional<std::string> environment_if_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

/// Returns the value of an environment variable; empty if it is not set.
inline std::string environment(const char* variable) { return environment_if_set(variable).value_or(""); }

/// Returns the number at the beginning of the variable's value; `otherwise` if it is not set.
template <class Number = int>
Number number_from_environment(const char* variable, Number otherwise = 0) {
  const char* value = std::getenv(variable);
  return value != nullptr ? static_cast<Number>(std::atoll(value)) : otherwise;
}

/// Removes a variable and overwrites its value, which /proc would show for as long as the process runs.
inline void erase_from_environment(const char* variable) {
  for (char* at = std::getenv(variable); at != nullptr && *at != '\0'; ++at) *at = '\0';
  ::unsetenv(variable);
}

}  // namespace lockstep
