// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "apps/tutorial/exercises/check/trial_run.h"

namespace lockstep {

/// The result of checking an answer.
struct Verdict {
  bool is_solved = false;
  std::string words;  ///< one line, then further lines about a mistake or failure
};

/// Compares the reports of the learner's program and the solution in one trial, line by line.
Verdict compare(const Trial& trial, const TrialRun& yours, const TrialRun& solution);

/// Runs both programs through the trials of an exercise and stops after the first wrong one. Each start of
/// the learner's program may take `deadline_seconds`. Throws UserError if a program is missing, and Error if
/// the solution fails.
Verdict check(const Exercise& exercise, const std::string& program, const std::string& solution,
              double deadline_seconds);

/// Returns the verdict of check() on a program with this mistake.
Verdict imagine(const Exercise& exercise, Mistake mistake, const std::string& solution);

}  // namespace lockstep
