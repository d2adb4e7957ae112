// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// One line "key = value" of an INI file.
struct IniEntry {
  std::string key;    ///< with its section: train.steps
  std::string value;  ///< without quotes and comment
  int line = 0;       ///< from 1
};

/// Sections in brackets; comments start with # or ; at the beginning or after a blank; a value in double
/// quotes is taken as it is. Throws UserError with `file` and line for anything else and for a key that
/// stands twice.
std::vector<IniEntry> parse_ini(const std::string& text, const std::string& file);

}  // namespace lockstep
