// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/store/object_store.h"

namespace lockstep {

/// A store of snapshots in a folder or in s3://bucket/prefix: step-00001000/ and so on. The best snapshot is
/// best/ in a folder and best-00001000/ in a bucket. Each is whole or absent: a folder is renamed when it is
/// whole, and in a bucket state.json is written last. One run uses the store at a time.
class SnapshotStore {
 public:
  /// The kind of a snapshot: one of the newest, or the best.
  enum class Kind { step, best };

  /// Keeps the `keep` newest snapshots and the best. Creates and contacts nothing before the first call.
  /// `guard` throws when nothing may be renamed or deleted any more.
  SnapshotStore(const std::string& path, int64_t keep, std::function<void()> guard = {});

  /// Begins a snapshot, which one rank or several write. Rank 0 calls begin(). All ranks call write() with
  /// its result. Rank 0 then calls end() with the results of all write() calls. If a call throws (a full
  /// disk, say), older snapshots stay as they were.
  std::string begin(Kind kind, int64_t step, const std::vector<SnapshotFile>& files);
  /// Writes the share of one rank. `begun` is the result of begin().
  std::string write(Kind kind, int64_t step, const std::string& begun, const std::vector<SnapshotFile>& files,
                    const RankShare& share, const std::byte* memory);
  /// Completes a snapshot and deletes those no longer kept. `written`: the results of write(), [rank].
  void end(Kind kind, const Snapshot& snapshot, const std::string& begun,
           const std::vector<SnapshotFile>& files, const std::vector<std::string>& written);
  /// Replaces the state of a step's snapshot in one step. Its tensors stay.
  void amend(const Snapshot& snapshot);
  /// A step that was not finite, and the snapshot that was passed over because of it. -1: none.
  struct FailedStep {
    int64_t step = -1;
    int64_t passed_over = -1;  ///< newest() passes it over until it is written again
  };
  /// Returns the last such step of the run, from the file failed-step.json.
  FailedStep failed_step() const;
  void set_failed_step(const FailedStep& failed);
  /// Deletes a snapshot that was begun and cannot be completed.
  void drop(Kind kind, int64_t step, const std::string& begun);
  /// Returns the alignment of the ranks' shares of a file of this size, in bytes; 1: none.
  int64_t part_bytes(int64_t file_bytes) const { return store_->part_bytes(file_bytes); }
  /// Returns the name that messages use.
  std::string name_of(Kind kind, int64_t step) const { return store_->name_of(group_of(kind, step)); }

  /// Returns the newest snapshot of a step below `end` that was not passed over, or nothing. Skips damaged
  /// ones and passes their problems to `report`. Throws UserError for a snapshot of another format.
  std::optional<StoredSnapshot> newest(const std::function<void(const std::string&)>& report,
                                       int64_t end = std::numeric_limits<int64_t>::max()) const;

  /// Writes and removes a small object. Throws the errors of ObjectStore, which give the reason.
  void try_to_write();
  /// Returns the names of all snapshots, valid or not. A folder or prefix of another name, or without a file
  /// that a snapshot has, belongs to others.
  std::vector<std::string> names() const;

 private:
  friend StoredSnapshot find_snapshot(const std::string& path);

  /// The files of a group. Its keys are equal up to their slash.
  struct Found {
    bool has_files = false;  ///< at least one that every snapshot has
    bool has_state = false;
  };
  std::map<std::string, Found> groups(const std::string& prefix) const;
  std::vector<std::string> snapshots_newest_first(const std::string& prefix) const;
  std::optional<StoredSnapshot> newest_listed(int64_t end, std::vector<std::string>& problems) const;
  std::string group_of(Kind kind, int64_t step) const;
  void remove_leftovers(Kind kind);
  void remove_older(Kind kind, const std::string& saved);

  std::shared_ptr<ObjectStore> store_;
  /// Names of text files that this object has written. Files of other names in a folder are not ours.
  std::shared_ptr<std::set<std::string>> text_files_ = std::make_shared<std::set<std::string>>();
  int64_t keep_;
};

/// Returns the snapshot at `path`. `path` may also be a folder or prefix of snapshots, or the folder of a run
/// that kept some. Then it returns the best, else the newest. Skips damaged ones as SnapshotStore::newest()
/// does, with a warning. Throws UserError naming the path if none is left.
StoredSnapshot find_snapshot(const std::string& path);

/// Returns whether all ranks can write to `path` and see what rank 0 wrote there: on a shared disk, or in a
/// bucket if each rank has credentials. If not, rank 0 logs the reason. All ranks call it.
bool is_shared_by_all(const World& world, const std::string& path);

}  // namespace lockstep
