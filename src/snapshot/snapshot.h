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

/// What the validations of a run have shown so far.
struct ValidationRecord {
  std::optional<double> best_loss = {};
  int64_t best_step = 0;
  int64_t since_best = 0;  ///< validations
};

/// Everything but tensors that a run needs to go on, or a model to be used: at any number of ranks.
struct Snapshot {
  int64_t step = 0;  ///< completed steps; also the data cursor, since data is a function of the step
  int64_t optimizer_steps = 0;         ///< successful updates
  bool is_finished = false;            ///< the run ended here
  bool is_validation_pending = false;  ///< of this step: a request to stop cut it short
  std::optional<double> best_validation_loss = {};
  ValidationRecord validations = {};             ///< whether their models could be kept or not
  std::optional<GradScale> grad_scale = {};      ///< of a run in fp16
  std::string configuration;                     ///< resolved, as INI
  std::map<std::string, std::string> artifacts;  ///< what the model needs besides tensors (its vocabulary)
  std::string matmul_plans;                      ///< how products are computed on a GPU (export_matmul_plans)
  std::string scope = {};  ///< of bits (train/scope.h), empty in snapshots of programs that did not record it
};

/// The newest format, which is the one that is written.
inline constexpr int64_t snapshot_format = 4;

/// A snapshot's state.json: what it is, a checksum of each tensor, and one of this text. Error where `sums`
/// ([file]) are not complete.
std::string state_text(const Snapshot& snapshot, const std::vector<SnapshotFile>& files,
                       const std::vector<TensorSums>& sums);

/// A snapshot in its place, of which no more than the state is in memory.
class StoredSnapshot {
 public:
  /// Reads the state of `group`. Throws UserError naming the file if it is missing or damaged.
  StoredSnapshot(std::shared_ptr<ObjectStore> store, std::string group);
  /// The same on another rank, from the text() of the one that has read it. Without a store it does not read.
  StoredSnapshot(const std::string& text, std::string name);
  StoredSnapshot(const std::string& text, std::shared_ptr<ObjectStore> store, std::string group);

  /// All but the tensors.
  const Snapshot& state() const { return state_; }
  /// Of the files: 1 (linear weights [out, in]), 2 ([in, out]), 3 (a checksum for each tensor) or 4 (more
  /// files: see ModelLayout).
  int64_t format() const { return format_; }
  bool has_tensor_checksums() const { return format_ >= 3; }
  /// All but state.json.
  std::vector<std::string> files() const;
  /// state.json.
  const std::string& text() const { return text_; }
  const std::string& group() const { return group_; }
  /// For a person.
  const std::string& name() const { return name_; }
  /// Whether this rank can read its files.
  bool is_readable_here() const { return store_ != nullptr; }

  /// What a file begins with, and the same as its reader knows it. Both throw UserError naming it if that is
  /// missing or damaged.
  std::string header(const std::string& file) const;
  SnapshotFile file_of(const std::string& file, const std::string& header) const;

  /// Reads a part of a file, piece after piece: each with its first byte. UserError where there is less.
  using Take = std::function<void(int64_t begin, std::span<const std::byte> piece)>;
  void read(const std::string& file, Range bytes, const Take& take) const;
  /// Reads all of it, once. UserError naming the tensor, or else the file, whose checksum does not match,
  /// after all of its pieces.
  void read(const std::string& file, const Take& take) const;
  /// UserError naming the first tensor whose checksum is another, or is not known though it is `wanted`
  /// ([tensor]).
  void compare(const SnapshotFile& file, const TensorSums& sums, const std::vector<bool>& wanted) const;
  /// Throws UserError naming a file that is missing or, where reading it costs no download, damaged.
  void verify() const;
  /// Throws UserError if a newer version of this program wrote it.
  void require_readable() const;

 private:
  /// What state.json tells of a file since format 3.
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
  std::string key(const std::string& file) const;
  std::string whole_checksum(const std::string& file) const;
  std::string name_of(const std::string& file) const;
  void read_to_end(const std::string& file, const Take& take) const;

  std::shared_ptr<ObjectStore> store_;
  std::string group_;
  std::string name_;
  std::string text_;
  int64_t format_ = 1;
  Snapshot state_;
  std::map<std::string, std::string> whole_;        ///< [file], before format 3
  std::map<std::string, FileChecksums> checksums_;  ///< [file]
};

/// Snapshots in a folder or in s3://bucket/prefix: step-00001000/ and so on, and the best one, which is best/
/// in a folder and best-00001000/ in a bucket. Each is whole or absent: a folder is renamed when it is whole,
/// in a bucket state.json comes last. One run uses it at a time.
class SnapshotStore {
 public:
  /// What a snapshot is kept as.
  enum class Kind { step, best };

  /// Keeps the `keep` newest besides the best. Nothing is made or contacted before the first call. `guard`
  /// throws where nothing may be renamed or deleted any more.
  SnapshotStore(const std::string& path, int64_t keep, std::function<void()> guard = {});

  /// Writes a snapshot, by one rank or several: rank 0 begins; all write their shares, with what begin() has
  /// returned; then rank 0 ends it, with what all write() have returned, and deletes what is too many. What
  /// they throw (a full disk, say) leaves older snapshots as they were; who does not come to an end drops it.
  std::string begin(Kind kind, int64_t step, const std::vector<SnapshotFile>& files);
  std::string write(Kind kind, int64_t step, const std::string& begun, const std::vector<SnapshotFile>& files,
                    const RankShare& share, const std::byte* memory);
  void end(Kind kind, const Snapshot& snapshot, const std::string& begun,
           const std::vector<SnapshotFile>& files, const std::vector<std::string>& written);
  void drop(Kind kind, int64_t step, const std::string& begun);
  /// Which bytes of a file of this size one rank has to write: multiples of so many; 1: any.
  int64_t part_bytes(int64_t file_bytes) const { return store_->part_bytes(file_bytes); }
  /// For a person.
  std::string name_of(Kind kind, int64_t step) const { return store_->name_of(group_of(kind, step)); }

  /// The newest valid snapshot of a step below `end`, or nothing. Each damaged one is passed over and told to
  /// `report`; one of a newer version of this program throws UserError. Where not `verified`, only states are
  /// read, and tensors may be damaged.
  std::optional<StoredSnapshot> newest(const std::function<void(const std::string&)>& report,
                                       int64_t end = std::numeric_limits<int64_t>::max(),
                                       bool verified = true) const;

  /// Writes and removes a small object. Throws UserError saying why that cannot be.
  void try_to_write();
  /// True if there is any snapshot, valid or not.
  bool holds_any() const;

 private:
  friend StoredSnapshot find_snapshot(const std::string& path);

  /// The parts of the keys before a slash, and whether each of these groups has a state.
  std::map<std::string, bool> groups(const std::string& prefix) const;
  std::vector<std::string> snapshots_newest_first(const std::string& prefix) const;
  std::string group_of(Kind kind, int64_t step) const;
  void make_room(const std::function<void()>& remove) const;
  void remove_leftovers(const std::string& prefix);
  void remove_older(Kind kind, const std::string& saved);

  std::shared_ptr<ObjectStore> store_;
  int64_t keep_;
};

/// One snapshot, or the best (else the newest) of a folder or prefix of snapshots, or of those that the run
/// in a folder has kept. Throws UserError naming the path if there is no valid one.
StoredSnapshot find_snapshot(const std::string& path);

/// Whether all ranks can write to a place of snapshots, and see there what rank 0 has written: a folder on a
/// disk that they share, or a bucket for which each has credentials. All ranks call it; rank 0 says why where
/// not.
bool is_shared_by_all(const World& world, const std::string& path);

/// Brings a snapshot's values to where a run keeps them, and its states, if it has any. Where every rank can
/// read the files, and tensors have checksums, each reads what it holds; else rank 0 reads them once and
/// hands on each piece. No rank has more of them than a piece besides its tensors. All ranks call it, and all
/// get the UserError that names what is damaged, missing or of another shape; some values are overwritten by
/// then. Those of format 1 come as linear weights [out, in] and are transposed. Where not `with_states` only
/// values are restored.
void restore(const StoredSnapshot& snapshot, const World& world, PlacedTensors& tensors,
             bool with_states = true);

}  // namespace lockstep
