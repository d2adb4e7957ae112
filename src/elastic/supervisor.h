// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/elastic/attempt.h"

namespace lockstep {

/// The number of restarts that a run has left. Each newer snapshot resets it.
class RestartBudget {
 public:
  explicit RestartBudget(int most_restarts) : most_restarts_(most_restarts) {}

  /// Counts a failed attempt whose newest snapshot is of this step (-1: none). Returns the seconds to wait
  /// before the next attempt: 0.2, doubled with each failure up to 30. Returns nothing if no restart is left.
  std::optional<double> next_wait(int64_t snapshot_step);
  int left() const { return most_restarts_ - used_; }

 private:
  int most_restarts_;
  int used_ = 0;
  int64_t newest_snapshot_ = -1;
};

/// Raises the limit of open files for `ranks` ranks. mpirun starts `here` of them on this host. Throws
/// UserError if the system allows too few.
void provide_descriptors_for(int ranks, int here);

/// A supervisor of a run: starts the ranks, and restarts them after failures, until they are done.
class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, Nodes& nodes, StopRequest& request);

  /// Runs all attempts. Returns lockrun's exit code: 0, 75, 130, or the failure's. Throws UserError, Error.
  int run();

 private:
  /// Waits for the hosts of the next attempt. Returns nothing if lockrun was asked to stop meanwhile.
  std::optional<JobLayout> gather();
  /// Runs one attempt. Returns the exit code, or nothing if another attempt follows.
  std::optional<int> run_generation(JobLayout placement);
  /// Waits until the readers of lockrun's output have taken it, or a signal asks to stop. If something on
  /// stdout is lost, logs the reason, and the exit code is 1 instead of 0. Returns the exit code.
  int deliver_output(int code);
  void report(const AttemptFailure& failure) const;
  /// Appends the failure to the run's events, if this host sees the folder with the log of rank 0.
  void record(const AttemptFailure& failure) const;
  /// Leaves the hosts of ranks that computed wrong out of later attempts.
  void leave_out_wrong(const AttemptFailure& failure, const JobLayout& placement);
  /// Returns the exit code after a request to stop that needed no snapshot: 75, or 130 after a second SIGINT.
  int leave_early() const;

  const LaunchOptions& options_;
  Nodes& nodes_;
  StopRequest& request_;
  RestartBudget budget_;
  Attempt::Starts earlier_;
  RankOutput output_;
  std::string lost_output_;  ///< why output of a rank is lost; empty: none is
  int64_t replicas_ = 0;     ///< most ranks that can train; 0 until an attempt reports it
};

}  // namespace lockstep
