// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/memory_limit.h"
#include "lockstep/comm/world.h"
#include "lockstep/plan/memory_plan.h"
#include "lockstep/plan/rehearsal.h"
#include "lockstep/train/language_task.h"

namespace lockstep {

/// A planner for trainings of any configuration, with the limits that they must fit.
struct Planner {
  std::function<MemoryPlan(const Job&, const PlannedRanks&)> plan_at;
  PlannedRanks place;
  std::vector<MemoryLimit> limits;
  int64_t most_samples = 1;  ///< the largest batch of a replica

  MemoryPlan plan(const Job& job) const { return plan_at(job, place); }
};

/// A plan compared with the limit that it comes nearest to.
struct MemoryVerdict {
  double needed = 0;
  MemoryLimit limit = {};
  bool fits() const { return needed <= limit.bytes; }
  /// Returns the needed share of the limit. Compare shares: verdicts may be about different limits.
  double share() const { return needed / limit.bytes; }
};
MemoryVerdict judge(const MemoryPlan& plan, const std::vector<MemoryLimit>& limits);

/// Returns the largest train.batch_size that fits, with all other settings unchanged; nothing if none does.
std::optional<int64_t> largest_batch(const Job& job, const Planner& planner);

/// A setting and its price.
struct MemoryChange {
  std::string setting;  ///< "train.recompute=block"
  std::string price;
};

/// Changes that together make a training fit.
struct MemoryRemedy {
  std::vector<MemoryChange> changes;
  MemoryVerdict verdict;
};

/// Returns the cheapest remedy. Changes that keep the bits come first, then changes that keep the time, then
/// other trainings. It has only changes that are needed.
std::optional<MemoryRemedy> cheapest_remedy(const Job& job, const Planner& planner);

/// Returns the fewest ranks that can train `job`, or nothing if no number can. Assumes that each host has
/// as many ranks and as much memory as this one. Also assumes that all ranks see the place for snapshots, and
/// that there is a replica for each rank.
std::optional<int> fewest_ranks(const Job& job, const Planner& planner);

/// Returns the text of --plan: rows, sums, the limit, the largest batch, and remedies if it does not fit.
std::string describe_plan(const Job& job, const Planner& planner);

/// Returns the plan. If it does not fit, throws UserError naming the key of the largest need and the remedy.
MemoryPlan require_memory(const Job& job, const Planner& planner);

/// A task with its model.
struct PlannedTask {
  PlannedTask(const Job& job, const LanguageData& data)
      : model(make_model(job, data.vocabulary_size)), task(job, *model, data) {}

  std::unique_ptr<LanguageModel> model;
  LanguageTask task;
};

/// Returns a planner for trainings like `job` on `data`, which it refers to. All ranks call it.
Planner language_planner(const Job& job, const World& world, const LanguageData& data);

}  // namespace lockstep
