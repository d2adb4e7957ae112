// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/movement/reduction_plan.h"

namespace lockstep::detail {

/// A micro-batch that two ranks compute.
struct AuditedWork {
  MicroBatch micro_batch;
  int owner = 0;    ///< the rank that executes it in the step
  int auditor = 0;  ///< the rank that computes it again
};

/// The order in which audits visit the micro-batches of a step. A plain value, equal on all ranks.
///
/// Every `every` steps is an audit, and each takes the next micro-batch. So every micro-batch is audited once
/// in `every` * micro_batches() steps. Each time around, the auditor is another rank.
struct AuditPlan {
  int64_t every = 0;  ///< steps from one audit to the next; 0: there are none
  int replicas = 1;
  int accumulate = 1;
  int ranks = 1;
  Execution execution = Execution::ranges;

  int64_t micro_batches() const { return int64_t{replicas} * accumulate; }
  /// Returns what the step with this index, from 0, audits. Returns nothing for one rank.
  std::optional<AuditedWork> of_step(int64_t index) const;
};

}  // namespace lockstep::detail
