// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/audit_plan.h"

namespace lockstep::detail {

std::optional<AuditedWork> AuditPlan::of_step(int64_t index) const {
  if (every == 0 || ranks == 1 || (index + 1) % every != 0) return std::nullopt;
  const int64_t audit = (index + 1) / every, number = audit % micro_batches();
  AuditedWork work{.micro_batch = {.replica = static_cast<int>(number / accumulate),
                                   .index = static_cast<int>(number % accumulate)}};
  work.owner = rank_of(work.micro_batch, replicas, accumulate, ranks, execution);
  const auto distance = static_cast<int>(1 + audit / micro_batches() % (ranks - 1));
  work.auditor = (work.owner + distance) % ranks;
  return work;
}

}  // namespace lockstep::detail
