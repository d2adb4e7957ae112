// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/object_store.h"
#include "tensor/tensor.h"

namespace lockstep {

/// Everything that a run needs to go on, or a model to be used: at any number of ranks.
struct Snapshot {
  int64_t step = 0;  ///< completed steps; also the data cursor, since data is a function of the step
  int64_t optimizer_steps = 0;         ///< successful updates
  bool is_finished = false;            ///< the run ended here
  bool is_validation_pending = false;  ///< of this step: a request to stop cut it short
  std::optional<double> best_validation_loss;
  std::string configuration;                     ///< resolved, as INI
  std::map<std::string, std::string> artifacts;  ///< what the model needs besides tensors (its vocabulary)
  std::string matmul_plans;                      ///< how products are computed on a GPU (export_matmul_plans)
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
};

/// A snapshot as the bytes of its files, by name: model.safetensors, optimizer.safetensors and state.json,
/// which holds the checksums of the others and of itself.
using SnapshotFiles = std::map<std::string, std::string>;

SnapshotFiles to_files(const Snapshot& snapshot);
/// Throws UserError naming the file that is cut, altered or missing. `origin` is the directory.
Snapshot from_files(const SnapshotFiles& files, const std::string& origin);

/// Snapshots in a folder or in s3://bucket/prefix: step-00001000/ and so on, and the best one, which is best/
/// in a folder and best-00001000/ in a bucket. Each is whole or absent: a folder is renamed when it is whole,
/// in a bucket state.json comes last. One process uses it at a time.
class SnapshotStore {
 public:
  /// Keeps the `keep` newest besides the best. Nothing is made or contacted before the first call. `guard`
  /// throws where nothing may be renamed or deleted any more.
  SnapshotStore(const std::string& path, int64_t keep, std::function<void()> guard = {});
  ~SnapshotStore();

  /// Writes a snapshot, then deletes what is too many. Throws Error (a full disk, say) and leaves older
  /// snapshots as they were.
  void save(const Snapshot& snapshot);
  void save_best(const Snapshot& snapshot);

  /// The files of the newest valid snapshot, or nothing. Each damaged one is passed over and told to
  /// `report`.
  std::optional<SnapshotFiles> newest(const std::function<void(const std::string&)>& report) const;

  /// Writes and removes a small object. Throws UserError saying why that cannot be.
  void try_to_write();
  /// True if there is any snapshot, valid or not.
  bool holds_any() const;

 private:
  friend Snapshot load_snapshot(const std::string& path);
  struct Group;

  std::vector<Group> groups(const std::string& prefix) const;
  std::vector<std::string> snapshots_newest_first(const std::string& prefix) const;
  SnapshotFiles read(const std::string& group) const;
  void write(const std::string& group, const Snapshot& snapshot);
  void make_room(const std::function<void()>& remove) const;
  void remove_leftovers(const std::string& prefix);

  std::unique_ptr<ObjectStore> store_;
  int64_t keep_;
};

/// Reads one snapshot, or the best (else the newest) of a folder or prefix of snapshots, or of those that the
/// run in a folder has kept. Throws UserError naming the path if there is no valid one.
Snapshot load_snapshot(const std::string& path);

}  // namespace lockstep
