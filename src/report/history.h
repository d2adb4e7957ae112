// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/report/run_files.h"

namespace lockstep {

/// A start of a run, until its end.
struct RunStart {
  enum class End { unknown, failed, stopped, finished };

  double begin = 0;        ///< in seconds since 1970
  int64_t first_step = 0;  ///< steps that were done before
  double end = 0;          ///< 0: not known
  int64_t last_step = 0;   ///< the last one whose result was known at the end
  End how = End::unknown;
  std::string cause = {};  ///< why it failed; empty: not known
};

/// Returns the starts of a run in their order, from its events. A run without such events has one start.
std::vector<RunStart> starts_of(const RunFiles& run);

/// Returns the facts of the last event of a kind; none if there is no such event.
std::map<std::string, std::string> last_facts(const std::vector<RunEvent>& events, const std::string& what);

/// What became of a run.
enum class RunState { finished, stopped_early, stopped, failed, open };
RunState state_of(const RunFiles& run);

/// Returns the sum of the durations of the starts whose end is known or that have metrics.
double seconds_of(const RunFiles& run);

}  // namespace lockstep
