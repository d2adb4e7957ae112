// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/config.h"
#include "snapshot/snapshot.h"
#include "store/folder_owner.h"

namespace lockstep {

/// What a folder holds of a run that was started there, compared with the run that is to start.
struct FoundRun {
  Config settings = {};                       ///< as far as they can be read
  std::vector<std::string> differences = {};  ///< in what fixes the bits: "train.seed = 5 there, 7 here"
  bool is_finished = false;
  int64_t step = 0;                  ///< the last that is recorded
  std::string parameters_hash = {};  ///< of a finished run, from its metrics
  int64_t patience = 0;              ///< of one that stopped early, from its metrics; else 0
  std::string snapshot_path = {};    ///< where it keeps its snapshots; empty: nowhere
};

/// What tells data from other data.
using Artifacts = std::map<std::string, std::string>;

/// The run whose metrics are in log.dir; nothing if none of its steps was completed. `config`, whose
/// train.steps is settled, and `artifacts`, the data, are those of the run that is to start.
std::optional<FoundRun> find_run(const Config& config, const Artifacts& artifacts);

/// Writes into log.dir what find_run() compares: the settings, as config.ini, and a hash of the data. What
/// cannot be written is said.
void write_fingerprint(const Config& config, const Artifacts& artifacts);

/// A line for each of the data: its name and a hash.
std::string hash_lines(const Artifacts& artifacts);

/// The run of a snapshot.
FoundRun run_of(const Snapshot& snapshot, const Config& config, const Artifacts& artifacts);

/// The settings, as INI, of the run in log.dir or else of the newest snapshot, if what was set for this start
/// goes with them; empty: there is no such run, or it is finished and another is meant. UserError where the
/// snapshots cannot be read.
std::string settings_to_go_on_with(const Config& config);

/// On one rank: the newest valid snapshot from which a start with these settings goes on, or else is refused:
/// of an unfinished run, or of any where a supervisor starts it again. Nothing where a run may begin.
std::optional<StoredSnapshot> snapshot_to_go_on_from(const Config& config);

/// The places of a run, log.dir and snapshot.path, which rank 0 owns while this lives, and what a start finds
/// there:
///
/// | a run that is      | of the same meaning          | of another meaning                |
/// |---|---|---|
/// | unfinished         | goes on                      | UserError with the keys           |
/// | finished           | stays, or gets further steps | moves whole to the next free NAME.n |
///
/// Meaning is what fixes the bits of the steps that are done. With snapshot.resume = never any run moves;
/// where a supervisor starts a run again none does.
class RunFolder {
 public:
  /// All ranks call it. `config` is settled but for train.decay_steps. `artifacts` (the data) are part of the
  /// meaning. UserError where a place cannot be written, belongs to another process, holds damaged snapshots
  /// only, or snapshot.resume forbids what is found.
  RunFolder(const Config& config, const World& world, const Artifacts& artifacts);

  /// What to go on from, without its tensors, on all ranks; null: from the beginning.
  const Snapshot* snapshot() const { return snapshot_ ? &snapshot_->state() : nullptr; }
  /// train.decay_steps of the run that goes on; 0: none does.
  int64_t decay_steps() const { return decay_steps_; }
  /// Brings what the snapshot holds, if there is one, to its places on all ranks. One that turns out damaged
  /// only now gives way to the one before; UserError if none is left.
  void load(PlacedTensors& tensors);
  /// Whether all ranks read and write snapshots; else rank 0 does.
  bool is_shared() const { return is_shared_; }
  /// The run, on rank 0, if it is finished and all of it is there; on the other ranks only that it is.
  const std::optional<FoundRun>& finished_run() const { return finished_run_; }

  /// Throws Error if the places are no longer this run's: now, and as of a second ago at most.
  void check() const;
  void check_recently() const;

 private:
  void take();
  std::optional<StoredSnapshot> newest_below(int64_t step) const;
  void share_snapshot();
  void find();
  void decide();
  bool must_move(const FoundRun& run, const std::string& place, bool may_move) const;
  void require_same_snapshot_path() const;
  void move_aside(bool log_folder, bool snapshots);
  void log_opening() const;
  bool snapshots_are_inside() const;

  const Config& config_;
  const World& world_;
  const Artifacts& artifacts_;
  std::vector<std::unique_ptr<FolderOwner>> owners_;  ///< on rank 0
  std::optional<FoundRun> in_log_folder_;
  std::optional<FoundRun> in_snapshots_;
  std::optional<StoredSnapshot> snapshot_;
  int64_t decay_steps_ = 0;
  bool is_shared_ = true;
  std::optional<FoundRun> finished_run_;
};

}  // namespace lockstep
