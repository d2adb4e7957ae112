// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "documents/comparison.h"
#include "documents/document.h"

namespace lockstep::documents {

/// A command of a document and its result.
struct Executed {
  Command command;
  Exactness exactness = Exactness::digits;  ///< exactness for the comparison of its output
  bool is_run = false;                      ///< false if the session ended before the command did
  int exit_code = -1;
  double seconds = 0.0;
  std::string failure = {};  ///< for an sh block: the command that failed, and its exit code
  std::vector<std::string> output = {};
};

struct Session {
  std::string sources;     ///< root of the sources
  std::string build;       ///< build folder; its programs are in bin/
  bool is_full = false;    ///< run shortened blocks at full length, with the data in LOCKSTEP_DATA_DIR
  int most_seconds = 240;  ///< time limit; then all processes of the session are killed
};

/// Executes the blocks of a document in one shell, so that variables, functions and files persist. The shell
/// runs in a new directory with links to the sources' top level, and to the build as build/cpu. Throws
/// std::runtime_error, with the line, for a malformed block.
std::vector<Executed> execute(const Document& document, const Session& session);

/// Returns the error of a command that failed or whose output differs from the document. Returns an empty
/// text if there is no error.
std::string problem_of(const Executed& executed);

}  // namespace lockstep::documents
