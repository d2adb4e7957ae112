// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/settings.h"
#include "lockstep/snapshot/snapshot_options.h"
#include "lockstep/snapshot/stored_snapshot.h"

namespace lockstep {

/// Texts by name that identify the data of a run.
using Artifacts = std::map<std::string, std::string>;

/// A run that is to start, as its folder compares it with the runs that it finds.
struct RunRequest {
  Settings settings;  ///< of all keys
  SnapshotOptions options;
  std::string log_folder;
  std::string snapshots;  ///< folder or bucket of its snapshots; empty: none
  int64_t steps = 0;      ///< 0: not known yet
  int64_t patience = 0;
  Artifacts artifacts = {};  ///< the data, which are part of the meaning; empty: not known yet
};

/// A run found in a folder, compared with the run that is to start.
struct FoundRun {
  std::string settings = {};                  ///< as INI
  std::vector<std::string> differences = {};  ///< keys and data that differ: "train.seed = 5 there, 7 here"
  bool is_finished = false;
  int64_t step = 0;                  ///< the last recorded one
  std::string parameters_hash = {};  ///< only if the run is finished; from its metrics
  int64_t patience = 0;              ///< only if the run stopped early; from its metrics; else 0
  std::string snapshot_path = {};    ///< folder or bucket of its snapshots; empty: none
};

/// Returns the run whose metrics are in the log folder, or nothing if it completed no step.
std::optional<FoundRun> find_run(const RunRequest& run);

/// Writes into the log folder what find_run() compares: config.ini and a hash of the data. Logs a failure.
void write_fingerprint(const RunRequest& run);

/// Returns a line for each artifact: its name and a hash.
std::string hash_lines(const Artifacts& artifacts);
/// Returns the hashes in lines of hash_lines(), by name. Skips lines of another kind.
std::map<std::string, std::string> hashes_in(const std::string& lines);

/// Returns the run that wrote a snapshot, compared with the run that is to start.
FoundRun run_of(const Snapshot& snapshot, const RunRequest& run);

/// Returns the settings, as INI, of the run in the log folder, else of the newest snapshot. Returns an empty
/// text if there is no run to resume, or if it is finished and this start means another. Throws UserError if
/// the snapshots cannot be read.
std::string settings_to_resume(const RunRequest& run);

/// Returns the newest snapshot of an unfinished run, or of any run if a supervisor restarts it. A start with
/// these settings resumes from it, from an older one of the same meaning, or is refused. Returns nothing if a
/// new run may begin. One rank calls it. RunFolder looks again: an earlier start that still owns the folder
/// may write or delete snapshots until then.
std::optional<StoredSnapshot> snapshot_to_resume(const RunRequest& run);

}  // namespace lockstep
