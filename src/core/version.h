// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// The version of the arithmetic. Every change of this program that changes a run's bits increases it.
/// CHANGELOG.md has the hashes before and after each.
inline constexpr int arithmetic_version = 2;

/// Returns the instructions that the compiler may use ("x86-64 avx512f fma"). Bits do not depend on them.
std::string instruction_set();

/// Returns the text of --version: the project's version, its arithmetic's version, the compiler, the
/// instruction set and the optional libraries.
std::string version_text();

}  // namespace lockstep
