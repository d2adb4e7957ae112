// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace lockstep {

/// The path of the configuration `name`: as given, else a bare name (with or without .ini) among the shipped
/// ones in $LOCKSTEP_CONFIG_DIR, beside the executable's build or installation, or in the source tree. Throws
/// UserError that lists the shipped ones.
std::string find_config_file(const std::string& name);

/// Whether somebody who writes just `name` means a configuration: an INI file that is there, or a shipped
/// one.
bool is_config_file(const std::string& name);

/// The whole file. Throws UserError if it cannot be read.
std::string read_config_file(const std::string& path);

/// The lines "key = value" of an INI text. Sections in brackets; comments start with # or ; at the beginning
/// or after a blank; a value in double quotes is taken as it is. Throws UserError with `file` and line, the
/// origin of a setting, for anything else and for a key that stands twice.
std::vector<Setting> parse_ini(const std::string& text, const std::string& file);

}  // namespace lockstep
