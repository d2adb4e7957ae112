// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// A key with a value, and the file and line (or command line) that set it.
struct Setting {
  std::string key;  ///< with its section: train.steps
  std::string value;
  std::string origin = "command line";
};

/// Returns the path of the configuration `name`: the file itself, else the shipped configuration of this name
/// (with or without .ini). Shipped ones are searched in $LOCKSTEP_CONFIG_DIR, then in the executable's build
/// or installation, then in the source tree. Throws UserError that lists them if none has this name.
std::string find_config_file(const std::string& name);

/// Returns true if `name` is an INI file that exists, or the name of a shipped configuration.
bool is_config_file(const std::string& name);

/// Returns the lines "key = value" of an INI text, with `file` and line as their origin. Sections are in
/// brackets. A comment starts with # or ; at the beginning of a line or after a blank. A value in double
/// quotes is taken literally. Throws UserError for any other line, and for a key that is set twice.
std::vector<Setting> parse_ini(const std::string& text, const std::string& file);

}  // namespace lockstep
