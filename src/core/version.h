// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// What the compiler was allowed to use, such as "x86-64 avx512f fma": part of the scope in which bits are
/// equal.
std::string instruction_set();

/// The line "key = value" of everything about this process, besides its settings, that bits depend on:
/// instruction set, compiler, the C library, whose functions initial values and schedules are made with, and
/// how a CPU of this kind multiplies numbers of 16 bits.
std::string scope_of_bits();

/// What --version prints: the project's version, the compiler, the instruction set, and the libraries that
/// may be left out.
std::string version_text();

}  // namespace lockstep
