// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// Returns the canonical path. "runs/a/", "runs/./a" and a link to it have the same one.
std::filesystem::path place_of(const std::string& path);
/// Returns the path without a slash at its end, so that a number can be appended.
std::string plain(const std::string& path);
/// Returns the first of path.1, path.2, ... that does not exist.
std::string free_name(const std::string& path);
/// Renames the folder of an earlier run to free_name() and logs it. Throws UserError naming `key`.
void rename_aside(const std::string& key, const std::string& path);

}  // namespace lockstep
