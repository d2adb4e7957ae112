// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/clock.h"
#include "snapshot/snapshot.h"

namespace lockstep {

/// Writes snapshots while training goes on: each rank copies its part to host memory, and a thread of each
/// brings the copy to its place. Rank 0 begins a snapshot and makes it whole; who is done with what is found
/// out by ranks that meet: all call all functions alike. A snapshot that cannot be written is reported, and
/// training goes on.
///
///     begin (rank 0) → write (every rank its part) → end (rank 0)
///
/// Where one rank writes everything it does all three at once.
class SnapshotWriter {
 public:
  /// What a snapshot is kept as: the newest of the run, the best, or both.
  struct Purpose {
    bool step = false;
    bool best = false;
  };
  struct Options {
    std::string path;
    int64_t keep = 1;
    bool is_shared = true;                 ///< every rank writes; else rank 0 alone: see is_shared_by_all()
    std::optional<double> best_loss = {};  ///< of the best snapshot that is there already
    std::function<void()> guard = {};      ///< as SnapshotStore's, of rank 0
    ModelLayout layout = {};
  };

  /// Keeps references.
  SnapshotWriter(const World& world, const PlacedTensors& tensors, Options options);
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  /// Only one is written at a time: if the one before takes longer than `patience_seconds`, this one is left
  /// out.
  void save(const Snapshot& snapshot, Purpose purpose, double patience_seconds);
  /// Goes on with what is being written where all ranks are done with the last part of it; waits for nothing.
  /// To be called now and then.
  void go_on();
  /// The validation loss of the best snapshot that is kept or being written; one that could not be does not
  /// count.
  std::optional<double> best_loss() const { return best_loss_; }
  /// Waits until nothing is being written, however long. Returns the step of the newest snapshot that was;
  /// -1: none was.
  int64_t finish();

 private:
  /// What the ranks are at.
  enum class Phase { idle, begin, write, end, drop };
  /// What a rank says of its work.
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
  // In the background:
  std::string write_alone();
  std::string write_part();
  std::string end(const std::vector<std::string>& written);
  std::string drop();

  const World& world_;
  const PlacedTensors& tensors_;
  std::unique_ptr<SnapshotStore> store_;  ///< of ranks that write
  std::vector<SnapshotFile> files_;
  Deal deal_;
  bool first_writes_alone_ = false;
  std::shared_ptr<std::byte> copy_;  ///< of this rank's part; used again by the next snapshot
  Snapshot snapshot_;
  std::vector<SnapshotStore::Kind> kinds_;  ///< as which it is still to be written, the last one now
  Phase phase_ = Phase::idle;
  Progress progress_ = Progress::done;
  std::string result_;  ///< of this rank's work: its outcome, or why it failed
  std::string begun_;
  int64_t newest_step_ = -1;
  std::optional<double> best_loss_;
  std::optional<double> best_loss_before_;  ///< that of the best snapshot while another is being written
  Clock::time_point began_;                 ///< when the copy was made
  std::future<std::string> work_;           ///< goes first: it uses the others
};

}  // namespace lockstep
