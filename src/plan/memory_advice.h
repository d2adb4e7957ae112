// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/memory_plan.h"

namespace lockstep {

/// Plans trainings, whatever their configuration, and knows what they have to fit into.
struct Planner {
  std::function<MemoryPlan(const Config&, const PlannedRanks&)> plan_at;
  PlannedRanks place;
  std::vector<MemoryLimit> limits;
  int64_t most_samples = 1;  ///< of a replica's batch

  MemoryPlan plan(const Config& config) const { return plan_at(config, place); }
};

/// How a plan stands to the limit that it comes nearest to.
struct MemoryVerdict {
  double needed = 0;
  MemoryLimit limit = {};
  bool fits() const { return needed <= limit.bytes; }
  /// Of the limit: verdicts on one configuration may be about different ones.
  double share() const { return needed / limit.bytes; }
};
MemoryVerdict judge(const MemoryPlan& plan, const std::vector<MemoryLimit>& limits);

/// The largest train.batch_size, with everything else as it is, that fits, if one does.
std::optional<int64_t> largest_batch(const Config& config, const Planner& planner);

/// One setting, and what it costs.
struct MemoryChange {
  std::string setting;  ///< "train.recompute=block"
  std::string price;
};

/// Changes which together make a training fit.
struct MemoryRemedy {
  std::vector<MemoryChange> changes;
  MemoryVerdict verdict;
};

/// The cheapest one: changes that keep the bits first, then those that keep the time, then other trainings,
/// and none that is not needed.
std::optional<MemoryRemedy> cheapest_remedy(const Config& config, const Planner& planner);

/// The fewest ranks that can train it, as many on each host as here, with memory like here, and a place for
/// snapshots that all of them see; nothing if no number of them can. There is a replica for each rank.
std::optional<int> fewest_ranks(const Config& config, const Planner& planner);

/// What --plan prints: rows, sums, the limit, the largest batch, and the remedies if it does not fit.
std::string describe_plan(const Config& config, const Planner& planner);

/// The plan. Throws UserError that names the key of the largest need, and the remedy, if it does not fit.
MemoryPlan require_memory(const Config& config, const Planner& planner);

}  // namespace lockstep
