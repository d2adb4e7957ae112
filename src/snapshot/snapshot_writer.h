// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "snapshot/snapshot.h"

namespace lockstep {

/// Writes snapshots while training goes on: save() copies the tensors to host memory and returns, and a
/// thread of the writer brings the copy to its place. A snapshot that cannot be written is reported, and
/// training goes on.
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
  /// Waits for the last one.
  ~SnapshotWriter();
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
  void serve();
  void write_best();
  void write_step();

  SnapshotStore store_;
  Snapshot copy_;  ///< its memory is used again by the next snapshot
  Purpose purpose_;
  int64_t newest_step_ = -1;
  std::optional<double> best_loss_;
  std::optional<double> best_loss_before_;  ///< that of the best snapshot while another is being written
  bool is_writing_ = false;
  bool stopping_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace lockstep
