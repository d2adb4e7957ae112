// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace lockstep {

/// A place for snapshots without an address.
enum class NamedPlace { in_log_folder, none };

/// Whether a start resumes an earlier run.
enum class Resume { if_possible, never, required };

/// The snapshots of a run. --help gives meanings, ranges and units.
struct SnapshotOptions {
  std::variant<NamedPlace, std::string> path = NamedPlace::in_log_folder;
  double every_minutes = 10.0;
  int64_t every_steps = 0;
  int64_t keep = 1;
  Resume resume = Resume::if_possible;
  double wait_minutes = 0.0;
};

/// Returns the folder or bucket of the snapshots of a run in `log_folder`; empty: there are none.
std::string place_of_snapshots(const SnapshotOptions& options, const std::string& log_folder);
/// Returns the folder or bucket of the snapshots of the run with the settings `ini`, which is the text of the
/// file `name`. The run is in `log_folder` now.
std::string place_of_snapshots(const std::string& ini, const std::string& name,
                               const std::string& log_folder);

}  // namespace lockstep
