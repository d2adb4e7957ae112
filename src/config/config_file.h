// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

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

}  // namespace lockstep
