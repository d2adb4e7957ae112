// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::documents {

/// Everything besides source and settings that bits depend on, in one line: "x86-64 avx512f fma, compiler
/// 12.2.0, glibc 2.36, 16 bits by fp32".
std::string scope_of_this_build();

/// The scope that the documents' digits were printed in, read from tests/documents/recorded.txt. Throws
/// std::runtime_error, naming the file, if it has no line "scope: ...".
std::string read_scope(const std::filesystem::path& file);
void write_scope(const std::filesystem::path& file, const std::string& scope);

}  // namespace lockstep::documents
