// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace lockstep {

/// Returns the value of an environment variable; empty if it is not set.
inline std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : "";
}

/// Returns the number at the beginning of the variable's value; `otherwise` if it is not set.
template <class Number = int>
Number number_from_environment(const char* variable, Number otherwise = 0) {
  const char* value = std::getenv(variable);
  return value != nullptr ? static_cast<Number>(std::atoll(value)) : otherwise;
}

}  // namespace lockstep
