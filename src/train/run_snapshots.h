// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "config/config.h"
#include "core/clock.h"
#include "snapshot/run_folder.h"
#include "snapshot/snapshot_writer.h"

namespace lockstep {

/// Which snapshots a run keeps: those that are due by steps or by rank 0's clock, the best, and the last.
/// Every rank has one, and all call it alike.
class RunSnapshots {
 public:
  /// What a snapshot of this moment holds; the best validation loss is added here.
  using Take = std::function<Snapshot()>;

  /// Keeps references.
  RunSnapshots(const Config& config, const World& world, const RunFolder& folder,
               const PlacedTensors& tensors, const ModelLayout& layout, Take take);

  /// Says what will be kept and where. UserError where there is no room for it. On rank 0.
  void describe(int64_t snapshot_bytes, bool has_best) const;

  /// True on rank 0 while its clock says that a snapshot is due: it then asks all ranks.
  bool is_time() const;
  /// A rank has asked: the next snapshot is due after the step that all have ended.
  void want() { is_wanted_ = true; }
  bool is_wanted() const { return is_wanted_; }
  /// By its number.
  bool is_due(int64_t step) const;

  /// Whether a model with this validation loss is the best so far; one that could not be kept does not count.
  bool is_best(double validation_loss);
  /// After each step: goes on with what is being written.
  void go_on() const;
  /// Takes the snapshot of this step, which all ranks have ended, if it is `due` (also by its number) or the
  /// `best`.
  void save(int64_t step, bool due, bool best);
  /// Waits for what is being written, and writes the snapshot of this step unless it is there. False if it
  /// cannot.
  bool save_last(int64_t step);

 private:
  void write(SnapshotWriter::Purpose purpose);

  const Config& config_;
  const World& world_;
  const RunFolder& folder_;
  Take take_;
  std::optional<double> best_loss_;
  bool is_wanted_ = false;
  Clock::time_point last_ = Clock::now();
  std::unique_ptr<SnapshotWriter> writer_;  ///< where snapshots are wanted
};

}  // namespace lockstep
