// SPDX-License-Identifier: Apache-2.0
// The program of scripts/renew_documents.sh. It executes the documents of this tree and writes the output of
// their commands into them.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "documents/renewal.h"
#include "lockstep/core/error.h"
#include "lockstep/program/command_line.h"
#include "support/temporary_directory.h"

using namespace lockstep;
using namespace lockstep::documents;

namespace {

const std::string sources = LOCKSTEP_SOURCE_DIR;
constexpr int hours_seconds = 4 * 3600;

struct Options {
  bool is_full = false;
  std::vector<std::string> only;
};

void require_documents(const std::vector<std::string>& paths) {
  const std::vector<std::string> known = document_paths(sources);
  for (const std::string& path : paths)
    if (std::find(known.begin(), known.end(), path) == known.end())
      throw std::runtime_error("there is no document " + path +
                               "; name it from the root, such as docs/ddp.md");
}

/// Executes one document and writes changed outputs into it. Returns true if the document changed.
bool renew(const std::string& path, const Session& session) {
  const std::string text = read_text(sources + "/" + path);
  const Document document = parse_document(path, text);
  if (!document.problems.empty()) {
    const Problem& problem = document.problems.front();
    throw std::runtime_error(concat(problem.file, ":", problem.line, ": ", problem.text));
  }
  const std::string fresh = renewed_text(document, execute(document, session));
  if (fresh == text) return false;
  write_text(sources + "/" + path, fresh);
  return true;
}

int renew_all(const Options& options) {
  const Session session = {.sources = sources,
                           .build = std::string(LOCKSTEP_PROGRAM_DIR) + "/..",
                           .is_full = options.is_full,
                           .most_seconds = hours_seconds};
  int failures = 0;
  for (const std::string& path : options.only.empty() ? document_paths(sources) : options.only) {
    try {
      std::cout << path << (renew(path, session) ? ": renewed" : ": unchanged") << std::endl;
    } catch (const std::exception& problem) {
      ++failures;
      std::cerr << problem.what() << std::endl;
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CommandLine line("Executes the documents and writes the output of their commands into them.");
  line.add_flag("--full", options.is_full, "run shortened blocks at full length (uses LOCKSTEP_DATA_DIR)");
  line.add("--only", options.only, "renew only these documents");
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  try {
    require_documents(options.only);
    return renew_all(options);
  } catch (const std::exception& problem) {
    std::cerr << "error: " << problem.what() << std::endl;
    return 2;
  }
}
