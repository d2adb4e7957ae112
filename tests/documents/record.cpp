// SPDX-License-Identifier: Apache-2.0
#include "documents/record.h"

#include <cstdlib>
#include <stdexcept>

#include "core/error.h"
#include "core/version.h"
#include "documents/document.h"
#include "support/temporary_directory.h"

namespace lockstep::documents {
namespace {

const std::string key = "scope: ";

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

std::string read_scope(const std::filesystem::path& file) {
  for (const std::string& line : lines_of(read_text(file.string())))
    if (line.starts_with(key)) return line.substr(key.size());
  throw std::runtime_error(concat(file.string(), ": there is no line '", key, "...'"));
}

void write_scope(const std::filesystem::path& file, const std::string& scope) {
  write_text(file.string(), concat("# The documents' digits were printed in this scope. "
                                   "scripts/renew_documents.sh writes this file.\n",
                                   key, scope, "\n"));
}

}  // namespace lockstep::documents
