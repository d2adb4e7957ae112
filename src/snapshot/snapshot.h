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

#include "comm/world.h"
#include "kernels/grad_scale.h"
#include "store/object_store.h"
#include "parameters/optimizer.h"
#include "tensor/tensor.h"

namespace lockstep {

/// Everything that a run needs to go on, or a model to be used: at any number of ranks.
struct Snapshot {
  int64_t step = 0;  ///< completed steps; also the data cursor, since data is a function of the step
  int64_t optimizer_steps = 0;         ///< successful updates
  bool is_finished = false;            ///< the run ended here
  bool is_validation_pending = false;  ///< of this step: a request to stop cut it short
  std::optional<double> best_validation_loss = {};
  std::optional<GradScale> grad_scale = {};      ///< of a run in fp16
  std::string configuration;                     ///< resolved, as INI
  std::map<std::string, std::string> artifacts;  ///< what the model needs besides tensors (its vocabulary)
  std::string matmul_plans;                      ///< how products are computed on a GPU (export_matmul_plans)
  std::vector<NamedTensor> model = {};           ///< this and the next: none where they stayed in the store
  std::vector<NamedTensor> optimizer = {};
};

/// What a snapshot's files are called. state.json has the checksums of the others and of itself.
inline constexpr const char* model_file = "model.safetensors";
inline constexpr const char* optimizer_file = "optimizer.safetensors";
inline constexpr const char* state_file = "state.json";

/// A snapshot in its place, of which no more than the state is in memory.
class StoredSnapshot {
 public:
  /// Reads the state of `group`. Throws UserError naming the file if it is missing or damaged.
  StoredSnapshot(std::shared_ptr<ObjectStore> store, std::string group);
  /// The same on a rank that does not read: from the text() of the one that does.
  StoredSnapshot(const std::string& text, const std::string& name);

  /// All but the tensors.
  const Snapshot& state() const { return state_; }
  /// Of the files: 1 (linear weights [out, in]) or 2 ([in, out]).
  int64_t format() const { return format_; }
  /// state.json.
  const std::string& text() const { return text_; }
  /// For a person.
  const std::string& name() const { return name_; }

  /// Reads a file once, piece after piece. Throws UserError naming it where its checksum does not match,
  /// after all of its pieces, or if it is missing.
  void read(const std::string& file, const std::function<void(std::span<const std::byte>)>& take) const;
  /// Throws UserError naming a file that is missing or, where reading it costs no download, damaged.
  void verify() const;
  /// Throws UserError if a newer version of this program wrote it.
  void require_readable() const;

 private:
  void parse();

  std::shared_ptr<ObjectStore> store_;
  std::string group_;
  std::string name_;
  std::string text_;
  int64_t format_ = 1;
  Snapshot state_;
  std::map<std::string, std::string> checksums_;
};

/// Snapshots in a folder or in s3://bucket/prefix: step-00001000/ and so on, and the best one, which is best/
/// in a folder and best-00001000/ in a bucket. Each is whole or absent: a folder is renamed when it is whole,
/// in a bucket state.json comes last. One process uses it at a time.
class SnapshotStore {
 public:
  /// Keeps the `keep` newest besides the best. Nothing is made or contacted before the first call. `guard`
  /// throws where nothing may be renamed or deleted any more.
  SnapshotStore(const std::string& path, int64_t keep, std::function<void()> guard = {});

  /// Writes a snapshot, then deletes what is too many. Throws Error (a full disk, say) and leaves older
  /// snapshots as they were.
  void save(const Snapshot& snapshot);
  void save_best(const Snapshot& snapshot);

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
  void write(const std::string& group, const Snapshot& snapshot);
  void make_room(const std::function<void()>& remove) const;
  void remove_leftovers(const std::string& prefix);

  std::shared_ptr<ObjectStore> store_;
  int64_t keep_;
};

/// One snapshot, or the best (else the newest) of a folder or prefix of snapshots, or of those that the run
/// in a folder has kept. Throws UserError naming the path if there is no valid one.
StoredSnapshot find_snapshot(const std::string& path);

/// Brings a snapshot's values into a model and, unless there is none, its optimizer, on every rank: rank 0
/// reads the files once and hands on each piece, which is all that a rank holds of them besides the tensors.
/// All ranks call it, and all get the UserError that names what is damaged, missing or of another shape; some
/// values are overwritten by then. Those of format 1 come as linear weights [out, in] and are transposed.
void restore(const StoredSnapshot& snapshot, const World& world, const std::vector<NamedTensor>& parameters,
             Optimizer* optimizer);

}  // namespace lockstep
