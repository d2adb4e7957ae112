// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::documents {

/// tests/documents/recorded.txt: where the digits of the documents come from, and a fingerprint of the
/// numbers of each. A digit that is changed by hand does not go unnoticed; one that was measured anew is
/// accepted by scripts/renew_documents.sh --accept.
struct Record {
  std::string scope;                                ///< as scope_of_this_build() gives it
  std::map<std::string, std::string> fingerprints;  ///< of each document, by its path
};

/// What bits depend on besides source and settings, in one line: "x86-64 avx512f fma, GCC 12.2.0,
/// glibc 2.36".
std::string scope_of_this_build();

/// Throws std::runtime_error, naming file and line, for a line that is not of the form.
Record read_record(const std::filesystem::path& file);
void write_record(const std::filesystem::path& file, const Record& record);

/// The fingerprint of all numbers of a document's text.
std::string fingerprint_of(const std::string& text);

}  // namespace lockstep::documents
