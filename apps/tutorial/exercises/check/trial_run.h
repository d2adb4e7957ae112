// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/tutorial/exercises/check/exercise_list.h"

namespace lockstep {

/// A line that begins with "step ": what exercise.h reports.
struct TraceLine {
  std::string text;
  std::optional<Point> point;  ///< if it has the bits of a loss
};

/// What a program reported in one trial.
struct TrialRun {
  std::vector<std::vector<TraceLine>> starts;  ///< those up to the one that failed
  std::string blank;                           ///< of the first blank that was met: its words and its place
  std::string failure;                         ///< why a start did not end well; empty if all did
};

/// The trace lines of an output.
std::vector<TraceLine> trace_lines(const std::string& output);

/// Time for a program that is known to end, on the slowest machine.
constexpr double patient_seconds = 120.0;

/// Runs a program as the trial says, in a fresh folder that goes afterwards. A start that takes longer than
/// `deadline_seconds` is ended, and has failed.
TrialRun run_trial(const std::string& program, const Trial& trial, double deadline_seconds = patient_seconds);

}  // namespace lockstep
