// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/clock.h"
#include "snapshot/run_folder.h"
#include "snapshot/snapshot.h"

namespace lockstep {

/// Writes snapshots while training goes on: save() copies the tensors to host memory and returns, and a
/// thread brings the copy to its place; the destructor waits for it. A snapshot that cannot be written is
/// reported, and training goes on.
class SnapshotWriter {
 public:
  /// What a snapshot is kept as: the newest of the run, the best, or both.
  struct Purpose {
    bool step = false;
    bool best = false;
  };

  /// `best_loss` is that of the best snapshot which is there already; `guard` as SnapshotStore's.
  SnapshotWriter(const std::string& path, int64_t keep, std::optional<double> best_loss = {},
                 std::function<void()> guard = {});
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  /// Only one is written at a time: if the one before takes longer than `patience_seconds`, this one is left
  /// out.
  void save(const Snapshot& snapshot, Purpose purpose, double patience_seconds);
  /// The validation loss of the best snapshot that is kept or being written; one that could not be does not
  /// count.
  std::optional<double> best_loss() const;
  /// Waits until nothing is being written. Returns the step of the newest snapshot that was; -1: none was.
  int64_t finish();

 private:
  void write();

  SnapshotStore store_;
  Snapshot copy_;  ///< its memory is used again by the next snapshot
  Purpose purpose_;
  int64_t newest_step_ = -1;
  std::optional<double> best_loss_;
  std::optional<double> best_loss_before_;  ///< that of the best snapshot while another is being written
  std::atomic<bool> is_best_lost_ = false;  ///< the other could not be written
  std::future<void> writing_;
};

/// Which snapshots a run keeps: those that are due by steps or by rank 0's clock, the best, and the last.
/// Every rank has one, so that all agree on the steps; what is written rank 0 writes.
class RunSnapshots {
 public:
  /// What a snapshot of this moment holds; the best validation loss is added here.
  using Take = std::function<Snapshot()>;

  /// Keeps references to config and folder.
  RunSnapshots(const Config& config, const RunFolder& folder, bool is_first_rank, Take take);

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
  /// Takes the snapshot of this step, which all ranks have ended, if it is `due` (also by its number) or the
  /// `best`.
  void save(int64_t step, bool due, bool best);
  /// Waits for what is being written, and writes the snapshot of this step unless it is there. False if it
  /// cannot.
  bool save_last(int64_t step);

 private:
  void write(SnapshotWriter::Purpose purpose);

  const Config& config_;
  const RunFolder& folder_;
  Take take_;
  std::optional<double> best_loss_;
  bool is_wanted_ = false;
  Clock::time_point last_ = Clock::now();
  std::unique_ptr<SnapshotWriter> writer_;  ///< on rank 0, where snapshots are wanted
};

}  // namespace lockstep
