// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

/// Everything that a run needs to go on, or a model to be used: at any number of ranks.
struct Snapshot {
  int64_t step = 0;  ///< completed steps; also the data cursor, since data is a function of the step
  int64_t optimizer_steps = 0;  ///< successful updates
  bool is_finished = false;     ///< the run ended here
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

/// A directory of snapshots: step-00001000/ and so on, and best/. One process uses it at a time.
class SnapshotStore {
 public:
  /// Keeps the `keep` newest besides best/. Nothing is made before the first save.
  SnapshotStore(std::string directory, int64_t keep);

  /// Writes beside, syncs, renames, then deletes what is too many. Throws Error (a full disk, say) and leaves
  /// older snapshots as they were.
  void save(const Snapshot& snapshot);
  void save_best(const Snapshot& snapshot);

  /// The files of the newest valid snapshot, or nothing. Each damaged one is passed over and told to
  /// `report`.
  std::optional<SnapshotFiles> newest(const std::function<void(const std::string&)>& report) const;

 private:
  std::vector<std::string> steps_newest_first() const;
  void write_directory(const std::string& name, const Snapshot& snapshot);

  std::string directory_;
  int64_t keep_;
};

/// Reads the files of one snapshot directory, or of the best (else the newest) in a directory of snapshots.
/// Throws UserError naming the path if there is no valid one.
Snapshot load_snapshot(const std::string& path);

}  // namespace lockstep
