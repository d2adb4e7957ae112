// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "snapshot/stored_snapshot.h"

namespace lockstep {

/// A run found in a folder, compared with the run that is to start.
struct FoundRun {
  Config settings = {};                       ///< the settings that could be read
  std::vector<std::string> differences = {};  ///< keys and data that differ: "train.seed = 5 there, 7 here"
  bool is_finished = false;
  int64_t step = 0;                  ///< the last recorded one
  std::string parameters_hash = {};  ///< only if the run is finished; from its metrics
  int64_t patience = 0;              ///< only if the run stopped early; from its metrics; else 0
  std::string snapshot_path = {};    ///< folder or bucket of its snapshots; empty: none
};

/// Texts by name that identify the data of a run.
using Artifacts = std::map<std::string, std::string>;

/// Returns the run whose metrics are in log.dir, or nothing if it completed no step. `config` and `artifacts`
/// (the data) belong to the run that is to start. train.steps of `config` is resolved.
std::optional<FoundRun> find_run(const Config& config, const Artifacts& artifacts);

/// Writes into log.dir what find_run() compares: config.ini and a hash of the data. Logs a failure.
void write_fingerprint(const Config& config, const Artifacts& artifacts);

/// Returns a line for each artifact: its name and a hash.
std::string hash_lines(const Artifacts& artifacts);

/// Returns the run that wrote a snapshot, compared with the run that is to start.
FoundRun run_of(const Snapshot& snapshot, const Config& config, const Artifacts& artifacts);

/// Returns the settings, as INI, of the run in log.dir, else of the newest snapshot. Returns an empty text if
/// there is no run to resume, or if it is finished and this start means another. Throws UserError if the
/// snapshots cannot be read.
std::string settings_to_go_on_with(const Config& config);

/// Returns the newest snapshot of an unfinished run, or of any run if a supervisor restarts it. A start with
/// these settings resumes from it, from an older one of the same meaning, or is refused. Returns nothing if a
/// new run may begin. One rank calls it. RunFolder looks again: an earlier start that still owns the folder
/// may write or delete snapshots until then.
std::optional<StoredSnapshot> snapshot_to_go_on_from(const Config& config);

}  // namespace lockstep
