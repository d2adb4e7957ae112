// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "documents/comparison.h"
#include "documents/document.h"

namespace lockstep::documents {

/// A command of a document and what came of it.
struct Executed {
  Command command;
  Exactness exactness = Exactness::digits;  ///< with which its output is to be compared
  bool is_run = false;                      ///< false: the session ended before
  int exit_code = -1;
  double seconds = 0.0;
  std::string failure = {};  ///< of a block of sh: the command that failed, and how
  std::vector<std::string> output = {};
};

struct Session {
  std::string sources;     ///< the root of the sources
  std::string build;       ///< the build's folder; its programs are in bin/
  bool is_full = false;    ///< blocks that are shortened run at their full length, on the data that are there
  int most_seconds = 240;  ///< then everything that is left is killed
};

/// Executes the blocks of a document in one shell, so that variables, functions and files stay, in a fresh
/// directory in which all of the sources' top level is linked, and the build as build/cpu. Throws
/// std::runtime_error, with the line, for a malformed block.
std::vector<Executed> execute(const Document& document, const Session& session);

/// What is wrong with it: a command that failed, or printed something else than the document shows; an empty
/// text if nothing is.
std::string problem_of(const Executed& executed);

}  // namespace lockstep::documents
