// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "snapshot/snapshot.h"

namespace lockstep {

/// What a folder holds of a run that was started there, compared with the run that is to start.
struct FoundRun {
  Config settings = {};                       ///< as far as they can be read
  std::vector<std::string> differences = {};  ///< in what fixes the bits: "train.seed = 5 there, 7 here"
  bool is_finished = false;
  int64_t step = 0;                  ///< the last that is recorded
  std::string parameters_hash = {};  ///< of a finished run, from its metrics
  std::string snapshot_path = {};    ///< where it keeps its snapshots; empty: nowhere
};

/// What tells data from other data.
using Artifacts = std::map<std::string, std::string>;

/// The run whose metrics are in log.dir; nothing if none of its steps was completed. `config`, whose
/// train.steps is settled, and `artifacts`, the data, are those of the run that is to start.
std::optional<FoundRun> find_run(const Config& config, const Artifacts& artifacts);

/// Writes into log.dir what find_run() compares: the settings, as config.ini, and a hash of the data. What
/// cannot be written is said.
void write_meaning(const Config& config, const Artifacts& artifacts);

/// A line for each of the data: its name and a hash.
std::string hash_lines(const Artifacts& artifacts);

/// The run of a snapshot.
FoundRun run_of(const Snapshot& snapshot, const Config& config, const Artifacts& artifacts);

/// The settings, as INI, of the run in log.dir or else of the newest snapshot, if what was set for this start
/// goes with them; empty: there is no such run, or it is finished and another is meant. UserError where the
/// snapshots cannot be read.
std::string settings_to_go_on_with(const Config& config);

}  // namespace lockstep
