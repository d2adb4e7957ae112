// SPDX-License-Identifier: Apache-2.0
// Behind scripts/renew_documents.sh: executes the documents of this tree and writes what their commands print
// into them, or records the numbers of documents as they are.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "config/command_line.h"
#include "core/error.h"
#include "documents/record.h"
#include "documents/renewal.h"
#include "support/temporary_directory.h"

using namespace lockstep;
using namespace lockstep::documents;

namespace {

const std::string sources = LOCKSTEP_SOURCE_DIR;
const std::string record_file = sources + "/tests/documents/recorded.txt";
constexpr int hours_seconds = 4 * 3600;

struct Options {
  bool is_full = false;
  std::vector<std::string> only;
  std::vector<std::string> accept;
};

void require_documents(const std::vector<std::string>& paths) {
  const std::vector<std::string> known = document_paths(sources);
  for (const std::string& path : paths)
    if (std::find(known.begin(), known.end(), path) == known.end())
      throw std::runtime_error("there is no document " + path +
                               "; name it from the root, such as docs/ddp.md");
}

/// Records the numbers of these documents, and forgets documents that are gone.
void accept(const std::vector<std::string>& paths, Record record) {
  for (const std::string& path : paths)
    record.fingerprints[path] = fingerprint_of(read_text(sources + "/" + path));
  std::erase_if(record.fingerprints,
                [](const auto& entry) { return !std::filesystem::exists(sources + "/" + entry.first); });
  write_record(record_file, record);
}

/// Executes one document and writes what is new into it. True if something was.
bool renew(const std::string& path, const Session& session) {
  const std::string text = read_text(sources + "/" + path);
  const Document document = parse_document(path, text);
  if (!document.problems.empty()) {
    const Problem& problem = document.problems.front();
    throw std::runtime_error(concat(problem.file, ":", problem.line, ": ", problem.text));
  }
  const std::string fresh = renewed_text(document, execute(document, session, Exactness::digits));
  if (fresh == text) return false;
  write_text(sources + "/" + path, fresh);
  return true;
}

bool is_recorded(const Record& record, const std::string& path) {
  const auto entry = record.fingerprints.find(path);
  return entry != record.fingerprints.end() &&
         entry->second == fingerprint_of(read_text(sources + "/" + path));
}

/// Renews documents, and the records of those whose numbers were the recorded ones before.
int renew_all(const Options& options, Record record) {
  const std::string scope = scope_of_this_build();
  const bool is_here = record.scope == scope;
  if (!is_here && !(options.is_full && options.only.empty()))
    throw std::runtime_error(concat("the digits of the documents are from ", record.scope, ", and this is ",
                                    scope, ": renew all of them, with --full, or none"));
  const Session session = {.sources = sources,
                           .build = std::string(LOCKSTEP_PROGRAM_DIR) + "/..",
                           .is_full = options.is_full,
                           .most_seconds = hours_seconds};
  int failures = 0;
  for (const std::string& path : options.only.empty() ? document_paths(sources) : options.only) {
    const bool was_recorded = is_recorded(record, path);
    try {
      const bool is_new = renew(path, session);
      std::cout << path << (is_new ? ": renewed" : ": as before") << std::endl;
      if (!was_recorded)
        std::cout
            << "  other numbers than the recorded ones were in it before; once you have looked at them:\n"
            << "  scripts/renew_documents.sh --accept " << path << std::endl;
      else
        record.fingerprints[path] = fingerprint_of(read_text(sources + "/" + path));
    } catch (const std::exception& problem) {
      ++failures;
      std::cerr << problem.what() << std::endl;
    }
  }
  if (failures == 0) record.scope = scope;
  accept({}, record);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CommandLine line("Executes the documents and writes what their commands print into them.");
  line.add_flag("--full", options.is_full, "shortened blocks as well, at full length (LOCKSTEP_DATA_DIR)");
  const CommandOption only = line.add("--only", options.only, "these documents alone");
  line.add("--accept", options.accept, "record the numbers of these documents, and execute nothing")
      .excludes(only);
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  try {
    require_documents(options.only);
    require_documents(options.accept);
    const Record record = read_record(record_file);
    if (options.accept.empty()) return renew_all(options, record);
    accept(options.accept, record);
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << "error: " << problem.what() << std::endl;
    return 2;
  }
}
