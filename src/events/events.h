// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// The file in log.dir that lists the events of a run, a line of JSON each. Lines are only appended: an event
/// that a crash undid stays.
inline constexpr const char* events_file = "events.jsonl";

/// Something that happened to a run besides its steps.
struct RunEvent {
  std::string what;                               ///< "start", "snapshot", "end", "failure", ...
  double unix_seconds = 0;                        ///< by the clock of the machine that wrote it
  int64_t step = 0;                               ///< the last step whose result was known
  std::map<std::string, std::string> facts = {};  ///< what else is known, by name

  /// Returns a fact; empty if it is not known.
  std::string fact(const std::string& name) const {
    const auto found = facts.find(name);
    return found == facts.end() ? "" : found->second;
  }
};

/// Appends an event to the file in `folder`, with the time of now. Any process of a run may call it. A file
/// that cannot be written costs only the event, which is logged.
void append_event(const std::string& folder, const std::string& what, int64_t step,
                  const std::map<std::string, std::string>& facts = {});

/// Returns the events in `folder` in the order of their lines. Skips lines that are torn or of another kind.
std::vector<RunEvent> read_events(const std::string& folder);

}  // namespace lockstep
