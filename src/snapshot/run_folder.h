// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/snapshot/found_run.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/store/bucket_lease.h"
#include "lockstep/store/owner.h"

namespace lockstep {

/// The two locations of a run, log.dir and snapshot.path. Rank 0 owns them during the lifetime of this
/// object. A start handles a run that it finds there like this:
///
/// | a run that is      | of the same meaning       | of another meaning                  |
/// |---|---|---|
/// | unfinished         | is resumed                | UserError with the keys             |
/// | finished           | stays, or gets more steps | moves whole to the next free NAME.n |
///
/// The meaning of a run is its semantic keys and its data. They fix the bits of its finished steps. With
/// snapshot.resume = never any run is moved. If a supervisor restarts a run, none is moved.
class RunFolder {
 public:
  /// All ranks call it. Throws UserError if a location cannot be written, belongs to another process or has
  /// only damaged snapshots. Also throws it if snapshot.resume does not allow the state of the locations.
  RunFolder(RunRequest run, const World& world);

  /// Returns on all ranks the snapshot to resume from, without its tensors; null if the run starts anew.
  const Snapshot* snapshot() const { return snapshot_ ? &snapshot_->state() : nullptr; }
  /// Returns on all ranks the settings of the run that is resumed, as INI; empty if none is.
  const std::string& resumed_settings() const { return resumed_settings_; }
  /// Loads the snapshot, if there is one, into the tensors of all ranks. If it turns out to be damaged, loads
  /// the one before instead, which snapshot() then returns. Throws UserError if none is left.
  void load(PlacedTensors& tensors);
  /// Loads the snapshot before the one that this start resumed from, because `step` is not finite
  /// (`problem`). Records it, so that no later start resumes from the newer snapshot or goes back for this
  /// step again. Returns false if one did before, or if there is no older snapshot. All ranks call it.
  bool go_back(int64_t step, const std::string& problem, PlacedTensors& tensors);
  /// Returns whether all ranks read and write snapshots. If not, rank 0 does it for all.
  bool is_shared() const { return is_shared_; }
  /// Returns the run in log.dir if it needs no more steps. Only rank 0 has its fields besides is_finished.
  const std::optional<FoundRun>& finished_run() const { return finished_run_; }

  /// Throws Error if the locations no longer belong to this run. May wait for a bucket.
  void check() const;
  /// Throws Error if the folders no longer belong to this run.
  void check_folders() const;
  /// Calls check() of a location if its last background check, about a second ago, found it lost.
  void check_recently() const;

 private:
  void take_folders();
  void take_bucket();
  std::optional<StoredSnapshot> newest_below(int64_t step, std::string damage = "") const;
  void fall_back(const std::string& damage);
  std::string none_is_left(const std::string& damage) const;
  void share_snapshot();
  void find();
  void decide();
  bool must_move(const FoundRun& run, const std::string& place, bool may_move) const;
  void require_same_snapshot_path() const;
  void move_aside(bool log_folder, bool snapshots);
  void log_opening() const;
  bool snapshots_are_inside() const;

  RunRequest run_;
  const World& world_;
  std::list<FolderOwner> owners_;       ///< on rank 0
  std::unique_ptr<BucketLease> lease_;  ///< on rank 0, of snapshots in a bucket
  std::optional<FoundRun> in_log_folder_;
  std::optional<FoundRun> in_snapshots_;
  std::optional<StoredSnapshot> snapshot_;
  int64_t newest_step_ = -1;  ///< of the snapshots that turned out to be damaged
  std::string resumed_settings_;
  bool is_shared_ = true;
  std::optional<FoundRun> finished_run_;
};

}  // namespace lockstep
