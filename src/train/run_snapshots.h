// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "lockstep/core/clock.h"
#include "lockstep/job/job.h"
#include "lockstep/snapshot/run_folder.h"
#include "lockstep/snapshot/snapshot_writer.h"

namespace lockstep {

/// The snapshots of a run: those due by steps or by rank 0's clock, the best one, and the last one. Every
/// rank has one such object, and all ranks make the same calls.
class RunSnapshots {
 public:
  /// Keeps references to its arguments. `sync_metrics` is called on rank 0, in the background.
  RunSnapshots(const Job& job, const World& world, const RunFolder& folder, const PlacedTensors& tensors,
               const ModelLayout& layout, std::function<void()> sync_metrics);

  /// Logs which snapshots are kept and where. Throws UserError if the disk lacks room. Call it on rank 0.
  void describe(int64_t snapshot_bytes, bool has_best) const;

  /// True on rank 0 while a snapshot is due by its clock. Rank 0 then asks all ranks for one.
  bool is_time() const;
  /// Records that a rank has asked: a snapshot is due after the step that all ranks end next.
  void want() { is_wanted_ = true; }
  bool is_wanted() const { return is_wanted_; }
  /// Returns whether a snapshot is due by the step's number.
  bool is_due(int64_t step) const;

  /// Returns whether this validation loss is the best so far. Models whose snapshot failed do not count.
  bool is_best(double validation_loss);
  /// Continues a snapshot that is being written. Call it after each step.
  void go_on() const {
    if (writer_) writer_->go_on();
  }
  /// Writes a snapshot for these purposes, of which there is one. All ranks have ended the step. Needs a
  /// snapshot.path.
  void save(Snapshot snapshot, SnapshotWriter::Purpose purpose);
  /// Waits for the snapshot that is being written. Then writes one of this step, unless there is one with the
  /// same state. Returns false if it cannot be written.
  bool save_last(Snapshot snapshot);
  /// Waits for the snapshot that is being written.
  void finish() const {
    if (writer_) writer_->finish();
  }
  /// Returns whether this object began to write a snapshot to resume from.
  bool has_begun_any() const { return has_begun_any_; }

 private:
  const Job& job_;
  const World& world_;
  std::optional<double> best_loss_;
  bool is_wanted_ = false;
  bool has_begun_any_ = false;
  Clock::time_point last_ = Clock::now();
  std::unique_ptr<SnapshotWriter> writer_;  ///< null without snapshots
};

}  // namespace lockstep
