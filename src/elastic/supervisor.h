// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "elastic/attempt.h"

namespace lockstep {

/// How often a run may still be restarted: so many times without getting on, i.e. without a newer snapshot.
class RestartBudget {
 public:
  explicit RestartBudget(int most_restarts) : most_restarts_(most_restarts) {}

  /// An attempt failed; its newest snapshot was of this step (-1: none). Returns the seconds to wait before
  /// the next one, 0.2 doubled with each failure up to 30; nothing if no restart is left.
  std::optional<double> next_wait(int64_t snapshot_step);
  int left() const { return most_restarts_ - used_; }

 private:
  int most_restarts_;
  int used_ = 0;
  int64_t newest_snapshot_ = -1;
};

/// Raises the limit of open files for `ranks` ranks, `here` of which mpirun starts on this host. UserError if
/// the system allows too few.
void provide_descriptors_for(int ranks, int here);

/// Starts the ranks of a run, again and again if need be, until they are done.
class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, Nodes& nodes, StopRequest& request);

  /// The code for lockrun to leave with: 0, 75, 130, or the failure's. Throws UserError, Error.
  int run();

 private:
  /// The next attempt's place; nothing if lockrun was told to stop meanwhile.
  std::optional<JobLayout> gather();
  /// Runs one attempt; the code to leave with, or nothing if there is to be another.
  std::optional<int> run_generation(JobLayout placement);
  void report(const Failure& failure) const;
  /// The code to leave with where no rank had to be told, or all were ended at once: 75, or 130.
  int leave_early() const;

  const LaunchOptions& options_;
  Nodes& nodes_;
  StopRequest& request_;
  RestartBudget budget_;
  Attempt::Starts earlier_;
  int64_t replicas_ = 0;  ///< of the run, once an attempt has told; more ranks than that cannot train
};

}  // namespace lockstep
