// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/core/clock.h"
#include "lockstep/snapshot/snapshot_store.h"

namespace lockstep {

/// A writer of snapshots in the background, while training continues. Each rank copies its part to host
/// memory, and a thread of the rank writes the copy. Rank 0 begins and completes a snapshot. All ranks call
/// all functions in the same order, and exchange their progress there. If a snapshot cannot be written, rank
/// 0 logs the error and training continues.
///
///     begin (rank 0) → write (every rank its part) → end (rank 0)
///
/// If one rank writes everything, it does all three at once.
class SnapshotWriter {
 public:
  /// The reasons to keep a snapshot: it is the newest of the run, the best, or both.
  struct Purpose {
    bool step = false;
    bool best = false;
  };
  /// What became of a snapshot.
  struct Result {
    int64_t step = 0;
    bool is_best = false;      ///< it was written as the best, else as the newest
    double seconds = 0;        ///< since its tensors were copied
    std::string problem = {};  ///< empty: it is complete
  };
  struct Options {
    std::string path;
    int64_t keep = 1;
    bool is_shared = true;                 ///< every rank writes; else rank 0 alone: see is_shared_by_all()
    std::optional<double> best_loss = {};  ///< loss of the best snapshot that exists already
    std::function<void()> guard = {};      ///< the guard of SnapshotStore, on rank 0
    /// Makes durable what a snapshot must not be newer than. Called on rank 0, in the background.
    std::function<void()> before_end = {};
    /// Receives each snapshot that was written, or the problem. Called on rank 0, also in the background.
    std::function<void(const Result&)> on_result = {};
    ModelLayout layout = {};
  };

  /// Keeps references to `world` and `tensors`.
  SnapshotWriter(const World& world, const PlacedTensors& tensors, Options options);
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  /// Copies the tensors and starts to write a snapshot. Only one is written at a time. If the one before
  /// takes longer than `patience_seconds`, this one is skipped.
  void save(const Snapshot& snapshot, Purpose purpose, double patience_seconds);
  /// Starts to replace the state of the newest snapshot, unless that is the same. The snapshot keeps its
  /// tensors. Call it when nothing is being written.
  void amend(const Snapshot& snapshot);
  /// Starts the next phase if all ranks have completed the last one. Does not wait. Call it regularly.
  void go_on();
  /// Returns the validation loss of the best snapshot that is kept or being written, not of one that failed.
  std::optional<double> best_loss() const { return best_loss_; }
  /// Waits for all writing, without a deadline. Returns the step of the newest written snapshot; -1: none.
  int64_t finish();

 private:
  /// The phase of the current snapshot.
  enum class Phase { idle, begin, write, end, drop };
  /// The progress of a rank in the current phase.
  enum class Progress : char { busy, done, failed };

  bool is_idle() const { return phase_ == Phase::idle; }
  void copy();
  void start(Phase phase, const std::function<std::string()>& work);
  void start_on_first(Phase phase, const std::function<std::string()>& work);
  void start_next();
  void look(double patience_seconds);
  void meet(double patience_seconds);
  void advance();
  void give_up();
  void close(bool is_kept);
  void publish(const std::string& problem) const;
  // Run in the background:
  std::string write_alone();
  std::string write_part();
  std::string end(const std::vector<std::string>& written);
  std::string drop();

  const World& world_;
  const PlacedTensors& tensors_;
  std::unique_ptr<SnapshotStore> store_;  ///< null on ranks that do not write
  std::vector<SnapshotFile> files_;
  Deal deal_;
  std::function<void()> before_end_;
  std::function<void(const Result&)> on_result_;
  bool first_writes_alone_ = false;
  std::shared_ptr<std::byte> copy_;  ///< this rank's part; the next snapshot uses the same memory
  Snapshot snapshot_;
  std::vector<SnapshotStore::Kind> kinds_;  ///< kinds still to be written; the last one is written now
  Phase phase_ = Phase::idle;
  Progress progress_ = Progress::done;
  std::string result_;  ///< outcome of this rank's work, or the reason why it failed
  std::string begun_;
  std::optional<Snapshot> newest_;  ///< the newest that was written to resume from
  std::optional<double> best_loss_;
  std::optional<double> best_loss_before_;  ///< best_loss_ to restore if the new best one fails
  Clock::time_point began_;                 ///< when the copy was made
  std::future<std::string> work_;           ///< destroyed first, because it uses the others
};

}  // namespace lockstep
