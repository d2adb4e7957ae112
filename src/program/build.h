// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Returns a line that identifies the code of this process: version_text(), the compiler's flags and the
/// linker's identifier of the program. Two builds of the same sources have equal lines if their compilers,
/// flags and folders are equal. The identifier differs between the programs of one build.
std::string build_text();

/// Returns the path of this process's program; empty if the system does not tell.
std::string program_path();

}  // namespace lockstep
