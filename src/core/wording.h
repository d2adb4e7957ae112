// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace lockstep {

/// How a program speaks about the library in messages. A library's user reads the names of options in the
/// code. A program's user reads the keys that set them, and advice about problems.
using Wording = std::map<std::string, std::string>;

/// Sets the wording of this process. Call it before other threads start.
void set_wording(Wording wording);

/// Returns the advice about a problem: `otherwise`, unless the wording has other advice.
std::string advice_about(const std::string& problem, const std::string& otherwise);

/// Returns the name of an option in messages: its own, unless the wording has another.
inline std::string option_name(const std::string& option) { return advice_about(option, option); }

}  // namespace lockstep
