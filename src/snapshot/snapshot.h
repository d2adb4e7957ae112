// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/grad_scale.h"
#include "snapshot/snapshot_files.h"
#include "store/object_store.h"

namespace lockstep {

/// The results of the validations of a run so far.
struct ValidationRecord {
  std::optional<double> best_loss = {};
  int64_t best_step = 0;
  int64_t since_best = 0;  ///< validations since the best one

  bool operator==(const ValidationRecord&) const = default;
};

/// The state of a run, without its tensors. Together with them it suffices to resume the run, or to use its
/// model, at any number of ranks.
struct Snapshot {
  int64_t step = 0;  ///< completed steps; also the data cursor, since data is a function of the step
  int64_t optimizer_steps = 0;         ///< successful updates
  bool is_finished = false;            ///< the run ended here
  bool is_validation_pending = false;  ///< a stop request cut short this step's validation
  std::optional<double> best_validation_loss = {};
  ValidationRecord validations = {};             ///< includes those whose snapshot could not be written
  std::optional<GradScale> grad_scale = {};      ///< only in fp16 runs
  std::string configuration;                     ///< resolved, as INI
  std::map<std::string, std::string> artifacts;  ///< other texts that the model needs (its vocabulary)
  std::string matmul_plans;                      ///< plans of matmuls on a GPU (export_matmul_plans)
  std::string scope = {};  ///< scope of the bits (train/scope.h); empty if the program did not record it

  bool operator==(const Snapshot&) const = default;
};

/// The format of the files, the only one that is read and written.
inline constexpr int64_t snapshot_format = 4;
/// The last commit of this repository that reads older formats, 1 to 3. It writes format 4.
inline constexpr const char* last_commit_with_older_formats = "b99816a";

/// Returns the text of a snapshot's state.json: its fields, a checksum of each tensor and a checksum of the
/// text. Throws Error if `sums` ([file]) are not complete.
std::string state_text(const Snapshot& snapshot, const std::vector<SnapshotFile>& files,
                       const std::vector<TensorSums>& sums);

/// Returns the text of state.json with the fields of another snapshot of the same tensors.
std::string amended_state_text(const std::string& text, const Snapshot& snapshot);

/// A snapshot in a folder or bucket. Only its state and the headers of its files are in memory.
class StoredSnapshot {
 public:
  /// Reads the state, the texts and the headers of `group`, and the sizes of its files. Throws UserError
  /// naming a file that is missing or damaged there. Tensors may still be damaged: reading them shows it. Of
  /// a snapshot in another format it reads only the state.
  StoredSnapshot(std::shared_ptr<ObjectReader> store, std::string group);
  /// Makes the snapshot on another rank, from the text() of the rank that read it. Without a store this rank
  /// cannot read its files.
  StoredSnapshot(const std::string& text, std::string name);
  /// Makes the snapshot on another rank that can read its files, from the text() of the rank that read it.
  StoredSnapshot(const std::string& text, std::shared_ptr<ObjectReader> store, std::string group);

  /// Returns everything but the tensors.
  const Snapshot& state() const { return state_; }
  /// Returns the names of all files except state.json.
  std::vector<std::string> files() const;
  /// Returns the text of state.json.
  const std::string& text() const { return text_; }
  const std::string& group() const { return group_; }
  /// Returns the name that messages use.
  const std::string& name() const { return name_; }
  /// Returns whether this rank can read the files.
  bool is_readable_here() const { return store_ != nullptr; }

  /// Returns a file of tensors, on the rank that read the snapshot.
  const SnapshotFile& file(const std::string& key) const { return opened_.at(key); }
  /// Makes a file of tensors from its header. Throws UserError naming the file if the header is damaged.
  SnapshotFile file_of(const std::string& file, const std::string& header) const;
  /// Reads a text file. Throws UserError naming it if it is missing or damaged.
  std::string read_text(const std::string& file) const;

  /// A function that receives a piece of a file and the position of its first byte.
  using Take = std::function<void(int64_t begin, std::span<const std::byte> piece)>;
  /// Reads a part of a file in pieces. Throws UserError if the file ends before.
  void read(const std::string& file, Range bytes, const Take& take) const;
  /// Reads all tensors of a file once, in pieces. Then throws UserError if a checksum does not match, naming
  /// the tensor.
  void read(const SnapshotFile& file, const Take& take) const;
  /// Throws UserError naming the first tensor whose checksum does not match. An unknown checksum is an error
  /// only if the tensor is `wanted` ([tensor]).
  void compare(const SnapshotFile& file, const TensorSums& sums, const std::vector<bool>& wanted) const;
  /// Reads all tensors. Throws UserError naming the first damaged one. Call it on the rank that read the
  /// snapshot, and only if nothing loads it: loading verifies too.
  void verify() const;
  /// Throws UserError if the snapshot has another format than snapshot_format.
  void require_readable() const;

 private:
  /// The checksums that state.json has of a file.
  struct FileChecksums {
    struct OfTensor {
      int64_t place = 0;  ///< in the flat buffer
      std::string checksum;
    };
    int64_t bytes = 0;
    std::string header;
    std::map<std::string, OfTensor> tensors;
  };

  void parse();
  SnapshotFile open(const std::string& file) const;
  std::string key(const std::string& file) const;
  const FileChecksums& checksums_of(const std::string& file) const;
  std::string name_of(const std::string& file) const;

  std::shared_ptr<ObjectReader> store_;
  std::string group_;
  std::string name_;
  std::string text_;
  int64_t format_ = snapshot_format;
  Snapshot state_;
  std::map<std::string, FileChecksums> checksums_;  ///< [file]
  std::map<std::string, SnapshotFile> opened_;      ///< [file of tensors]
};

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
  /// Completes a snapshot and deletes those that are no longer kept. `written` are the results of write(),
  /// [rank].
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
  /// ones, of which no StoredSnapshot can be made, and passes their problems to `report`. Throws UserError
  /// for a snapshot of another format.
  std::optional<StoredSnapshot> newest(const std::function<void(const std::string&)>& report,
                                       int64_t end = std::numeric_limits<int64_t>::max()) const;

  /// Writes and removes a small object. Throws the errors of ObjectStore, which give the reason.
  void try_to_write();
  /// Returns whether there is any snapshot, valid or not.
  bool holds_any() const;

 private:
  friend StoredSnapshot find_snapshot(const std::string& path);

  /// Returns the groups (the keys up to their slash), and whether each of them has a state.
  std::map<std::string, bool> groups(const std::string& prefix) const;
  std::vector<std::string> snapshots_newest_first(const std::string& prefix) const;
  std::string group_of(Kind kind, int64_t step) const;
  void make_room(const std::function<void()>& remove) const;
  void remove_leftovers(const std::string& prefix);
  void remove_older(Kind kind, const std::string& saved);

  std::shared_ptr<ObjectStore> store_;
  int64_t keep_;
};

/// Returns the snapshot at `path`. `path` may also be a folder or prefix of snapshots, or the folder of a run
/// that kept some. Then it returns the best, else the newest. Skips damaged ones as SnapshotStore::newest()
/// does, with a warning. Throws UserError naming the path if none is left.
StoredSnapshot find_snapshot(const std::string& path);

/// Returns whether all ranks can write to `path` and see what rank 0 wrote there. This holds for a folder on
/// a shared disk, and for a bucket if each rank has credentials. All ranks call it. If it does not hold, rank
/// 0 logs the reason.
bool is_shared_by_all(const World& world, const std::string& path);

/// Loads a snapshot's values, and its states if it has any, into `tensors`. Each rank reads what it holds if
/// every rank can read the files. Otherwise rank 0 reads them once and broadcasts each piece. Besides its
/// tensors a rank holds at most one piece. All ranks call it. All throw the UserError naming what is damaged,
/// missing or of another shape. Some values are overwritten by then. If not `with_states`, only values are
/// restored.
void restore(const StoredSnapshot& snapshot, const World& world, PlacedTensors& tensors,
             bool with_states = true);

}  // namespace lockstep
