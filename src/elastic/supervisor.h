// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "elastic/generation.h"
#include "elastic/restart_budget.h"

namespace lockstep {

/// Starts the ranks of a run, again and again if need be, until they are done.
class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, Nodes& nodes, StopRequest& request);

  /// The code for lockrun to leave with: 0, 75, 130, or the failure's. Throws UserError, Error.
  int run();

 private:
  /// The next generation's place; nothing if lockrun was told to stop meanwhile.
  std::optional<Placement> gather();
  /// Runs one generation; the code to leave with, or nothing if there is to be another.
  std::optional<int> run_generation(const Placement& placement);
  void report(const Failure& failure) const;
  void pause(double seconds);
  /// The code to leave with where no rank had to be told: 75, or 130.
  int leave_early() const;

  const LaunchOptions& options_;
  Nodes& nodes_;
  StopRequest& request_;
  RestartBudget budget_;
  Generation::Starts earlier_;
};

}  // namespace lockstep
