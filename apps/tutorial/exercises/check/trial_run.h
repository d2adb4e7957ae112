// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/tutorial/exercises/check/exercise_list.h"

namespace lockstep {

/// A line that exercise.h reports. It begins with "step ".
struct TraceLine {
  std::string text;
  std::optional<Point> point;  ///< set if the line has the bits of a loss
};

/// The reports of a program in one trial.
struct TrialRun {
  std::vector<std::vector<TraceLine>> starts;  ///< up to the first failed one
  std::string blank;                           ///< words and place of the first blank that was reached
  std::string failure;                         ///< why a start failed; empty if none did
};

/// Returns the trace lines of an output.
std::vector<TraceLine> trace_lines(const std::string& output);

/// A deadline for a program that is known to end, even on the slowest machine.
constexpr double patient_seconds = 120.0;

/// Runs a program as the trial says, in a new folder that is removed afterwards. A start that takes longer
/// than `deadline_seconds` is ended and counts as failed.
TrialRun run_trial(const std::string& program, const Trial& trial, double deadline_seconds = patient_seconds);

}  // namespace lockstep
