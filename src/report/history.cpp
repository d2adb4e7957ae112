// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/history.h"

#include <algorithm>

namespace lockstep {
namespace {

RunStart::End end_of(const std::string& what) {
  if (what == "failure") return RunStart::End::failed;
  return what == "stop" ? RunStart::End::stopped : RunStart::End::finished;
}

/// Adds the end of a start. An end without a start is that of one which failed before its first step.
void add_end(std::vector<RunStart>& starts, const RunEvent& event) {
  if (starts.empty() || starts.back().how != RunStart::End::unknown)
    starts.push_back({.begin = event.unix_seconds, .first_step = event.step});
  RunStart& start = starts.back();
  start.how = end_of(event.what);
  start.end = event.unix_seconds;
  start.last_step = event.step;
  start.cause = event.fact("cause");
}

}  // namespace

std::vector<RunStart> starts_of(const RunFiles& run) {
  std::vector<RunStart> starts;
  const bool has_starts = std::ranges::count(run.events, "start", &RunEvent::what) > 0;
  if (!has_starts && run.metrics.steps > 0) starts.push_back({.begin = run.metrics.begin});
  for (const RunEvent& event : run.events) {
    if (event.what == "start") {
      starts.push_back({.begin = event.unix_seconds, .first_step = event.step, .last_step = event.step});
    } else if (event.what == "failure" || event.what == "stop" || event.what == "end") {
      add_end(starts, event);
    } else if (!starts.empty()) {
      starts.back().last_step = std::max(starts.back().last_step, event.step);
    }
  }
  if (starts.empty() || starts.back().how != RunStart::End::unknown) return starts;
  starts.back().last_step = run.metrics.steps;
  if (run.metrics.is_complete) {
    starts.back().how = RunStart::End::finished;
    starts.back().end = run.metrics.end;
  }
  return starts;
}

std::map<std::string, std::string> last_facts(const std::vector<RunEvent>& events, const std::string& what) {
  const auto last =
      std::find_if(events.rbegin(), events.rend(), [&](const RunEvent& event) { return event.what == what; });
  return last == events.rend() ? std::map<std::string, std::string>() : last->facts;
}

RunState state_of(const RunFiles& run) {
  if (run.metrics.is_complete) return run.metrics.patience > 0 ? RunState::stopped_early : RunState::finished;
  const std::vector<RunStart> starts = starts_of(run);
  if (starts.empty() || starts.back().how == RunStart::End::unknown) return RunState::open;
  return starts.back().how == RunStart::End::failed ? RunState::failed : RunState::stopped;
}

double seconds_of(const RunFiles& run) {
  const std::vector<RunStart> starts = starts_of(run);
  double seconds = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    double end = starts[i].end;
    if (end == 0) end = i + 1 < starts.size() ? starts[i + 1].begin : run.metrics.end;
    seconds += std::max(0.0, end - starts[i].begin);
  }
  return seconds;
}

}  // namespace lockstep
