// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/kernels/grad_scale_state.h"
#include "lockstep/metrics/chain.h"
#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/store/object_store.h"

namespace lockstep {

/// The results of the validations of a run so far.
struct ValidationRecord {
  std::optional<double> best_loss = {};
  int64_t best_step = 0;
  int64_t since_best = 0;  ///< validations since the best one

  bool operator==(const ValidationRecord&) const = default;
};

/// The state of a run. With its tensors it suffices to resume the run or use its model at any rank count.
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
  std::string scope = {};  ///< scope of the bits (train/run_log.h); empty if the program did not record it
  RunChain chain = {};     ///< up to `step`

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
  /// Reads the state, the texts and the headers of `group`, and the sizes of its files. Of a snapshot in
  /// another format it reads only the state. Throws UserError naming a missing or damaged file. Damage of
  /// tensors shows only when they are read.
  StoredSnapshot(std::shared_ptr<ObjectReader> store, std::string group);
  /// Makes the snapshot on another rank, from the text() of the rank that read it. Without a store this rank
  /// cannot read its files, and `group` is the name in messages.
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
  /// Reads all tensors of a file once, in pieces. Then throws UserError naming one with a wrong checksum.
  void read(const SnapshotFile& file, const Take& take) const;
  /// Throws UserError naming the first tensor whose checksum differs. An unknown checksum is an error only if
  /// the tensor is `wanted` ([tensor]).
  void compare(const SnapshotFile& file, const TensorSums& sums, const std::vector<bool>& wanted) const;
  /// Returns a hash of the names and checksums of all tensors. Snapshots of equal tensors have equal ones.
  uint64_t tensors_hash() const;
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

/// Loads a snapshot's values, and its states if `with_states` and it has any, into `tensors`. Each rank reads
/// what it holds if every rank can read the files. Otherwise rank 0 reads them once and broadcasts each
/// piece. Besides its tensors a rank holds at most one piece. All ranks call it. All throw the UserError
/// naming what is damaged, missing or of another shape. Some values are overwritten by then.
void restore(const StoredSnapshot& snapshot, const World& world, PlacedTensors& tensors,
             bool with_states = true);

}  // namespace lockstep
