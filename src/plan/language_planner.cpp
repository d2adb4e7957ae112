// SPDX-License-Identifier: Apache-2.0
#include "plan/language_planner.h"

#include <algorithm>
#include <memory>

#include "core/text.h"

namespace lockstep {
namespace {

constexpr int64_t most_planned_layers = 256;

/// Returns b + times * (b - a), row by row and sum by sum.
MemoryPlan extended(const MemoryPlan& a, MemoryPlan b, double times) {
  for (MemoryRow& row : b.rows) {
    const auto before = std::ranges::find(a.rows, row.name, &MemoryRow::name);
    row.bytes += times * (row.bytes - (before == a.rows.end() ? 0.0 : before->bytes));
  }
  for (const auto member :
       {&MemoryPlan::peak, &MemoryPlan::mapped, &MemoryPlan::on_host, &MemoryPlan::host, &MemoryPlan::shared})
    b.*member += times * (b.*member - a.*member);
  return b;
}

/// Returns the machine's memory limits, plus train.memory_gib if it is set.
std::vector<MemoryLimit> limits_of(const Job& job, const World& world) {
  std::vector<MemoryLimit> limits = memory_limits(world);
  const double bytes = job.compute.memory_gib * 1073741824.0;
  if (bytes > 0) {
    const std::string setting = concat("train.memory_gib = ", value_of(job, "train.memory_gib"));
    limits.push_back(
        {bytes, concat(setting, " leaves a rank ", bytes_text(bytes)), MemoryLimit::Bounds::resident});
  }
  return limits;
}

}  // namespace

Planner language_planner(const Job& job, const World& world, const LanguageData& data) {
  const auto plan = [&data](const Job& of, const PlannedRanks& place) {
    return plan_memory(of, place, [&data](const Job& made) {
      const auto planned = std::make_shared<const PlannedTask>(made, data);
      return std::shared_ptr<const TrainingTask>(planned, &planned->task);
    });
  };
  const auto plan_any = [plan, vocabulary = data.vocabulary_size](Job of, const PlannedRanks& place) {
    of.model.vocab_size = vocabulary;
    const int64_t layers = of.model.n_layer;
    // N recompute segments need at least N layers. Rules that name parameters may need certain layers.
    const bool names_layers = !of.optimizer.freeze.empty() || !of.optimizer.groups.empty();
    if (layers <= most_planned_layers || 2 * of.compute.recompute.segments > most_planned_layers ||
        names_layers)
      return plan(of, place);
    // Each row is linear in the number of layers. Two plans of fewer layers, extended, take less time.
    of.model.n_layer = most_planned_layers / 2;
    const MemoryPlan half = plan(of, place);
    of.model.n_layer = most_planned_layers;
    return extended(half, plan(of, place), 2.0 * static_cast<double>(layers) / most_planned_layers - 2.0);
  };
  const int64_t replicas = std::max<int64_t>(job.dist.replicas, 1);
  return {.plan_at = plan_any,
          .place = planned_ranks(world, data.id_bytes),
          .limits = limits_of(job, world),
          .most_samples = (data.training->size() + replicas - 1) / replicas};
}

}  // namespace lockstep
