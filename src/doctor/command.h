// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// How a command ended and what it wrote, to stdout and stderr together.
struct CommandResult {
  int exit_code = -1;  ///< 127 if there is no such program, 128 + signal if one ended it
  bool timed_out = false;
  std::string output;

  bool succeeded() const { return exit_code == 0 && !timed_out; }
};

/// Runs a program found in PATH, with `environment` ("NAME=value") added to this one's. After
/// `deadline_seconds` it is ended with all that it started. Throws Error if no process can be made.
CommandResult run_within(double deadline_seconds, const std::vector<std::string>& words,
                         const std::vector<std::string>& environment = {});

}  // namespace lockstep
