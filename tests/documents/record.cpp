// SPDX-License-Identifier: Apache-2.0
#include "documents/record.h"

#include <cstdlib>
#include <fstream>
#include <regex>
#include <stdexcept>

#include "core/error.h"
#include "core/version.h"
#include "documents/comparison.h"
#include "documents/document.h"
#include "support/temporary_directory.h"

namespace lockstep::documents {
namespace {

constexpr const char* heading =
    "# Where the digits of the documents come from, and a fingerprint of the numbers of each document. "
    "Written by\n"
    "# scripts/renew_documents.sh; CONTRIBUTING.md says when.\n";

}  // namespace

std::string scope_of_this_build() {
  ::setenv("LOCKSTEP_BF16_UNIT", "off", 1);  // as execution.cpp does, before this process asks for it
  std::string text;
  for (const std::string& line : lines_of(scope_of_bits())) {
    const std::string value = line.substr(line.find(" = ") + 3);
    text += concat(text.empty() ? "" : ", ", line.starts_with("compiler") ? "compiler " : "", value);
  }
  return text;
}

Record read_record(const std::filesystem::path& file) {
  static const std::regex entry("([^ ]+) ([0-9a-f]{16})");
  Record record;
  int number = 0;
  for (const std::string& line : lines_of(read_text(file.string()))) {
    ++number;
    std::smatch match;
    if (line.empty() || line.starts_with("#")) continue;
    if (line.starts_with("scope: ")) {
      record.scope = line.substr(7);
    } else if (std::regex_match(line, match, entry)) {
      record.fingerprints[match[1]] = match[2];
    } else {
      throw std::runtime_error(concat(file.string(), ":", number, ": '", line,
                                      "' is neither 'scope: ...' nor '<document> <16 hexadecimal digits>'"));
    }
  }
  return record;
}

void write_record(const std::filesystem::path& file, const Record& record) {
  std::string text = concat(heading, "scope: ", record.scope, "\n");
  for (const auto& [document, fingerprint] : record.fingerprints)
    text += concat(document, " ", fingerprint, "\n");
  write_text(file.string(), text);
}

std::string fingerprint_of(const std::string& text) { return fingerprint(numbers_of(text)); }

}  // namespace lockstep::documents
