// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {

/// Returns the message of the UserError that body() throws.
template <class Body>
std::string user_error(Body&& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

/// Returns the message of the Error of any kind that body() throws.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

inline void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

}  // namespace lockstep
