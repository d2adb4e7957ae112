// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Changes with every change of this program after which a run has other bits. CHANGELOG.md has the hashes
/// before and after each.
inline constexpr int arithmetic_version = 2;

/// What the compiler was allowed to use, such as "x86-64 avx512f fma". Bits do not depend on it.
std::string instruction_set();

/// The text of --version: the project's version, that of its arithmetic, the compiler, the instruction set,
/// and the libraries that may be left out.
std::string version_text();

}  // namespace lockstep
