// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/memory_advice.h"

#include <algorithm>
#include <memory>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/job/load_job.h"

namespace lockstep {
namespace {

/// Returns the value of a key as the job's INI file has it.
std::string value_of(const Job& job, const std::string& key) { return job_keys().settings_of(job)[key]; }

double bounded_part(const MemoryPlan& plan, const MemoryLimit& limit) {
  if (limit.bounds == MemoryLimit::Bounds::host) return plan.host;
  if (limit.bounds == MemoryLimit::Bounds::on_host) return plan.on_host;
  return limit.bounds == MemoryLimit::Bounds::mapped ? plan.mapped : plan.peak;
}

bool can_be_sharded(const Job& job, int ranks) {
  try {
    require_sharding(job, ranks);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

/// Returns the changed configuration; nothing if it would be refused or the last change has no effect.
std::optional<Job> with(const Job& job, const std::vector<MemoryChange>& changes, int ranks) {
  SettingLayer settings;
  for (const MemoryChange& change : changes) {
    const size_t equals = change.setting.find('=');
    settings.push_back({change.setting.substr(0, equals), change.setting.substr(equals + 1), "a plan"});
  }
  try {
    if (!settings.empty() && value_of(job, settings.back().key) == settings.back().value) return std::nullopt;
    const Job other = with_settings(job, settings);
    return can_be_sharded(other, ranks) ? std::optional(other) : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

/// Changes of one key, the mildest first. At most one is taken.
using Kind = std::vector<MemoryChange>;

/// Returns the stages of sharding with their prices.
const Kind& stages() {
  static const Kind stages = {
      {"dist.shard=optimizer", "the same time and bits"},
      {"dist.shard=gradients", "gradients travel unit by unit; the same bits"},
      {"dist.shard=full", "values travel for every forward and backward; the same bits"}};
  return stages;
}

/// Returns the ways to offload a GPU's memory to its host, with their prices.
Kind offloads() {
  if (gpu_of(current_stream()) < 0) return {};
  return {
      {"dist.offload=optimizer", "gradients are sent to the host, which updates the values; the same bits"},
      {"dist.offload=all",
       "values are stored on the host, and each block is copied when it is read; the same bits"}};
}

/// Returns kinds of changes by price: those that keep the bits come first, then those that keep the time.
std::vector<Kind> kinds_of_changes(const Job& job, const PlannedRanks& place) {
  const auto& [batch_size, accumulate] = job.batches;
  const int64_t logit_rows = job.compute.logit_rows;
  const int64_t rows = job.micro_batch() * job.text.block_size;
  Kind recompute = {{"train.recompute=attention", "attention is computed twice; the same bits"},
                    {"train.recompute=block", "about 1.33 times the computation; the same bits"}};
  Kind pieces, parts;
  for (const int64_t part : {4, 16, 64})
    if (rows / part > 0 && (logit_rows == 0 || rows / part < logit_rows))
      pieces.push_back({concat("train.logit_rows=", rows / part), "about the same time; other bits"});
  const bool keeps_loss = job.text.loss_mean == LossMean::tokens;
  for (int64_t count = 2 * accumulate; count <= batch_size; count += accumulate)
    if (batch_size % count == 0)
      parts.push_back({concat("train.accumulate=", count),
                       keeps_loss ? "about the same time; other bits"
                                  : "about the same time; other bits; with examples another loss"});
  Kind precision;
  if (job.compute.precision == DType::f32)
    precision.push_back({"train.precision=bf16", "16-bit activations; other bits"});
  const Kind no_copy = {
      {"snapshot.path=none", "the same bits; an interrupted run starts from the beginning"}};
  return {recompute, place.ranks > 1 ? stages() : Kind{}, offloads(), pieces, parts, precision, no_copy};
}

/// Returns the verdict on a configuration with these changes, or nothing if it would be refused.
std::optional<MemoryVerdict> try_changes(const Job& job, const Planner& planner,
                                         const std::vector<MemoryChange>& changes) {
  const std::optional<Job> other = with(job, changes, planner.place.ranks);
  return other ? std::optional(judge(planner.plan(*other), planner.limits)) : std::nullopt;
}

/// Removes needless changes in the order in which they were taken. So the last one is kept longest.
MemoryRemedy pruned(const Job& job, const Planner& planner, MemoryRemedy remedy) {
  for (size_t i = 0; i < remedy.changes.size() && remedy.changes.size() > 1;) {
    std::vector<MemoryChange> fewer = remedy.changes;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    const auto verdict = try_changes(job, planner, fewer);
    if (verdict && verdict->fits())
      remedy = {std::move(fewer), *verdict};
    else
      ++i;
  }
  return remedy;
}

/// Returns the least number from 1 to `most` for which holds() is true, or most + 1. If it is true for a
/// number, it is true for all larger ones.
template <class Holds>
int64_t first_that(int64_t most, Holds holds) {
  int64_t before = 0, found = 1;
  for (; !holds(found); found = std::min(2 * found, most)) {
    if (found == most) return most + 1;
    before = found;
  }
  while (found - before > 1) {
    const int64_t middle = before + (found - before) / 2;
    (holds(middle) ? found : before) = middle;
  }
  return found;
}

std::string line(const std::string& name, double bytes) {
  const std::string amount = bytes_text(bytes);
  return concat("  ", left_aligned(name, 35 - amount.size()), amount, "\n");
}

/// Returns the largest row that a key can be blamed for.
const MemoryRow& blamed_row(const MemoryPlan& plan) {
  const auto bytes = [](const MemoryRow& row) { return row.key.empty() ? -1.0 : row.bytes; };
  return *std::ranges::max_element(plan.rows, {}, bytes);
}

/// Returns the rows of at least 1 % of the peak, as text.
std::string large_rows(const MemoryPlan& plan) {
  std::vector<std::string> all;
  for (const MemoryRow& row : plan.rows)
    if (row.bytes >= 0.01 * plan.peak) all.push_back(concat(row.name, " ", bytes_text(row.bytes)));
  return joined(all);
}

/// Returns the number of ranks that each stage needs, as text. It is empty if no number is enough.
std::string describe_ranks(const Job& job, const Planner& planner) {
  std::vector<std::string> all;
  for (const MemoryChange& stage : stages()) {
    const bool is_here = stage.setting == concat("dist.shard=", name(job.dist.shard));
    const auto other = is_here ? std::optional(job) : with(job, {stage}, planner.place.ranks);
    if (const auto ranks = other ? fewest_ranks(*other, planner) : std::nullopt)
      all.push_back(concat(stage.setting, " on ", *ranks));
  }
  if (all.empty()) return "";
  return concat("with more ranks, ", planner.place.ranks_of_host,
                " on each host like this one: ", joined(all));
}

std::string describe(const MemoryRemedy& remedy) {
  std::vector<std::string> all;
  for (const auto& [setting, price] : remedy.changes) all.push_back(concat(setting, " (", price, ")"));
  return concat(joined(all, " and "), ", which takes ", bytes_text(remedy.verdict.needed));
}

/// Returns the needed memory as text, for a rank or for all ranks of a host.
std::string needs(const MemoryVerdict& verdict, const PlannedRanks& place) {
  const bool is_shared_out = verdict.limit.bounds == MemoryLimit::Bounds::host && place.ranks_of_host > 1;
  return concat(is_shared_out ? concat(place.ranks_of_host, " ranks need") : "a rank needs", " at least ",
                bytes_text(verdict.needed));
}

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

MemoryVerdict judge(const MemoryPlan& plan, const std::vector<MemoryLimit>& limits) {
  expect(!limits.empty(), "a plan without a limit");
  const auto share = [&](const MemoryLimit& limit) { return bounded_part(plan, limit) / limit.bytes; };
  const MemoryLimit& nearest = *std::ranges::max_element(limits, {}, share);
  return {bounded_part(plan, nearest), nearest};
}

std::optional<int64_t> largest_batch(const Job& job, const Planner& planner) {
  const int64_t parts = job.batches.accumulate;
  const int64_t most = std::max<int64_t>(1, planner.most_samples / parts);
  const int64_t too_many = first_that(most, [&](int64_t samples) {
    Job other = job;
    other.batches.batch_size = samples * parts;
    return !judge(planner.plan(other), planner.limits).fits();
  });
  return too_many > 1 ? std::optional((too_many - 1) * parts) : std::nullopt;
}

std::optional<MemoryRemedy> cheapest_remedy(const Job& job, const Planner& planner) {
  std::vector<MemoryChange> taken;
  double least = judge(planner.plan(job), planner.limits).share();
  const auto from = [&](const Kind& kind) -> std::optional<MemoryRemedy> {
    std::optional<MemoryChange> best;  // the best change of those that are not enough
    for (const MemoryChange& change : kind) {
      std::vector<MemoryChange> changes = taken;
      changes.push_back(change);
      const auto verdict = try_changes(job, planner, changes);
      if (!verdict) continue;
      if (verdict->fits()) return pruned(job, planner, {changes, *verdict});
      if (verdict->share() < least) best = change;
      least = std::min(least, verdict->share());
    }
    if (best) taken.push_back(*best);
    return std::nullopt;
  };
  for (const Kind& kind : kinds_of_changes(job, planner.place))
    if (const auto remedy = from(kind)) return remedy;
  if (const auto batch = largest_batch(job, planner)) {
    const std::vector<MemoryChange> smaller = {{concat("train.batch_size=", *batch), "another run"}};
    if (const auto verdict = try_changes(job, planner, smaller)) return MemoryRemedy{smaller, *verdict};
  }
  Kind models;
  for (int64_t layers = job.model.n_layer / 2; layers > 0; layers /= 2)
    models.push_back({concat("model.n_layer=", layers), "a smaller model"});
  return from(models);
}

std::optional<int> fewest_ranks(const Job& job, const Planner& planner) {
  // With more ranks than the data has batches, some ranks would have less to do. Such numbers are not tried.
  const int64_t batches =
      std::max<int64_t>(1, job.dist.replicas) * planner.most_samples / job.batches.batch_size;
  const int64_t most_hosts = std::clamp<int64_t>(batches / planner.place.ranks_of_host, 1, 1 << 12);
  PlannedRanks place = planner.place;
  const int64_t hosts = first_that(most_hosts, [&](int64_t number) {
    place.ranks = static_cast<int>(number) * place.ranks_of_host;
    place.writes_together = true;
    Job other = job;
    other.dist.replicas = std::max(job.dist.replicas, place.ranks);
    return can_be_sharded(other, place.ranks) && judge(planner.plan_at(other, place), planner.limits).fits();
  });
  if (hosts > most_hosts) return std::nullopt;
  return static_cast<int>(hosts) * place.ranks_of_host;
}

std::string describe_plan(const Job& job, const Planner& planner) {
  const MemoryPlan plan = planner.plan(job);
  const PlannedRanks& place = planner.place;
  const MemoryVerdict verdict = judge(plan, planner.limits);
  std::string text =
      concat("memory of ", place.ranks == 1 ? "the rank" : concat("rank 0 of ", place.ranks), "\n");
  for (const MemoryRow& row : plan.rows) text += line(row.name, row.bytes);
  text += line("at most", plan.peak);
  const bool on_gpu = gpu_of(current_stream()) >= 0;
  if (on_gpu) text += line("on the host", plan.on_host);
  if (place.ranks_of_host > 1)
    text += concat(place.ranks_of_host, " ranks of this host: ", bytes_text(plan.host),
                   on_gpu ? "" : concat(", including ", bytes_text(plan.shared), " of shared memory"), "\n");
  if (on_gpu) text += "on a GPU, kernels and libraries take further memory that is not in the plan\n";
  if (verdict.limit.bounds == MemoryLimit::Bounds::mapped)
    text += concat("address space: ", bytes_text(plan.mapped), "\n");
  text += concat(verdict.fits() ? "it fits: " : "it does not fit: ", verdict.limit.owner, "\n");
  const auto largest = largest_batch(job, planner);
  text += largest ? concat("the largest train.batch_size that fits: ", *largest, " (here ",
                           job.batches.batch_size, "), in ", counted(job.batches.accumulate, "part"), "\n")
                  : "no train.batch_size fits\n";
  if (verdict.fits()) return text;
  const auto remedy = cheapest_remedy(job, planner);
  const MemoryRow& row = blamed_row(plan);
  text += remedy ? concat("the cheapest change that fits: ", describe(*remedy), "\n")
                 : concat("no change of the training fits; the largest part grows with ", row.key, " = ",
                          value_of(job, row.key), "\n");
  const std::string ranks = describe_ranks(job, planner);
  return text + (ranks.empty() ? "" : ranks + "\n");
}

MemoryPlan require_memory(const Job& job, const Planner& planner) {
  MemoryPlan plan = planner.plan(job);
  const MemoryVerdict verdict = judge(plan, planner.limits);
  if (verdict.fits()) return plan;
  const MemoryRow& largest = blamed_row(plan);
  // Rows describe the memory of the device that computes.
  const bool is_beside = plan.on_host > 0 && verdict.limit.bounds != MemoryLimit::Bounds::resident;
  const std::string key = is_beside ? "dist.offload" : largest.key;
  const auto remedy = cheapest_remedy(job, planner);
  throw UserError(concat(key, " = ", value_of(job, key), ": ", needs(verdict, planner.place), " (",
                         is_beside ? "host memory of a rank with a GPU" : large_rows(plan), "), but ",
                         verdict.limit.owner, "; ",
                         remedy      ? "what fits: " + describe(*remedy)
                         : is_beside ? "train a smaller model, or set snapshot.path=none"
                                     : largest.advice));
}

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
