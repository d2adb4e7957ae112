// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "apps/tutorial/exercises/check/trial_run.h"

namespace lockstep {

/// What is to be said of an answer.
struct Verdict {
  bool is_solved = false;
  std::string words;  ///< one line, and for what is known of a mistake a second one
};

/// Compares what the learner's program and the solution have reported in one trial, line by line.
Verdict compare(const Trial& trial, const TrialRun& yours, const TrialRun& solution);

/// Runs both programs through all trials of an exercise, up to the first that is not as it should be; a start
/// of the learner's has so many seconds. Throws UserError if a program is not there, Error if the solution
/// itself fails.
Verdict check(const Exercise& exercise, const std::string& program, const std::string& solution,
              double deadline_seconds);

/// What check() would say of a program with this mistake.
Verdict imagine(const Exercise& exercise, Mistake mistake, const std::string& solution);

}  // namespace lockstep
